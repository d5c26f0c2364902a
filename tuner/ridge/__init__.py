"""Linear heads in closed form: ridge regression on pooled features by sums, solved in milliseconds. Numpy alone.

- `sums`: features as integer codes, and the sums XᵀX and XᵀT of them. They are exact: a sample that is added and then
  removed leaves no bit, and no order of samples matters.
- `solve`: the ridge head of some sums, pulled to zero or to a given head (recursive), what it answers to each sample
  when that sample is left out, class means, the log prior of classes.
- `calibrate`: a temperature, and the mixture of several scores, by maximum likelihood.
- `union`: the head of a model that knows some classes and learns others: the given head, a local ridge head and a gate
  between the two domains, folded into one linear layer.
"""
