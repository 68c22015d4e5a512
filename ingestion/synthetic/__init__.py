"""Generated surveys for offline work: geology, seismic response and true SEG-Y, from one seed.

>>> from ingestion.synthetic import BASINS, make_survey, write_segy
>>> write_segy(make_survey(BASINS["deltaic"], seed=1), Path("deltaic_1.sgy"))
"""

from ingestion.synthetic.basins import BASINS, Basin
from ingestion.synthetic.segy_writer import write_segy
from ingestion.synthetic.survey import SyntheticSurvey, make_survey

__all__ = ["BASINS", "Basin", "SyntheticSurvey", "make_survey", "write_segy"]
