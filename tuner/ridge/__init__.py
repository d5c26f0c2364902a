"""Linear heads in closed form: ridge regression on pooled features by sums, solved in milliseconds. Numpy alone.

- `sums`: features as integer codes, and their exact sums XᵀX and XᵀT.
- `solve`: the ridge head of some sums, and what it answers to each sample when that sample is left out.
- `calibrate`: the mixture of several scores, by maximum likelihood.
- `union`: the head of a model that knows some classes and learns others.
- `personal`: the head of a user, with her own class prior.
"""
