"""A flow whose cards show what a stranger may write."""

from pathlib import Path

from matplotlib.figure import Figure
from metaflow import FlowSpec, card, current, step

from flows import cards
from flows.surveys import SurveyOutcome
from ingestion.manifest import Finding

HOSTILE = (
    "[click me](javascript:document.title='owned') ![p](http://127.0.0.1:9/pixel) <img src=x> *a* `b` it's http://x.y/z"
)


class HostileCards(FlowSpec):
    @card(type="blank", id="survey")
    @card(type="blank", id="training")
    @step
    def start(self):
        finding = Finding(code="odd", severity="hold", found=HOSTILE, expected=HOSTILE, release=HOSTILE)
        outcome = SurveyOutcome(survey="north", status="held", digest=None, findings=[finding], report=None)
        Figure(figsize=(1, 1)).savefig("picture.png")
        cards.survey(current.card["survey"], outcome, {HOSTILE: Path("picture.png").read_bytes()})
        view = cards.Training(current.card["training"], 12)
        figures = ("voxels_per_second", "mfu", "data_wait_share", "communication_share")
        view.update([{"step": 3, "loss": 0.5} | dict.fromkeys(figures, 0.5)])
        view.say(HOSTILE)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    HostileCards()
