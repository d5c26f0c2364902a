"""What pictures of a run show: points of trials with intervals, how the front grew; and pictures drawn with letters."""
