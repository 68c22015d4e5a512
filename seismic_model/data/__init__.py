"""From published volumes to crops: the frozen data set, sampling and the reader."""
