#include "head.h"

#include <math.h>
#include <stddef.h>

/* Largest code of a feature, and the largest difference of codes of one sample that is computed twice. */
#define LARGEST 16384
#define SAME 2

@tables@

/* Samples are rows less `centre`, with a one last, so that sums of large features do not drown small ones. */

static int16_t coded(float feature) {
  const float code = rintf(feature / step);
  return (int16_t)(code > LARGEST ? LARGEST : code < -LARGEST ? -LARGEST : code);
}

static const int16_t *codes_of(const head *self, int sample) {
  return sample < HEAD_GIVEN ? given_codes[sample] : self->codes[sample - HEAD_GIVEN];
}

static int label_of(const head *self, int sample) {
  return sample < HEAD_GIVEN ? given_labels[sample] : self->labels[sample - HEAD_GIVEN];
}

static int are_finite(const float *features) {
  for (int i = 0; i < HEAD_FEATURES; i++)
    if (!isfinite(features[i])) return 0;
  return 1;
}

static void set_row(head *self, const int16_t *codes) {
  for (int i = 0; i < HEAD_FEATURES; i++) self->row[i] = codes[i] * step - centre[i];
  self->row[HEAD_FEATURES] = 1;
}

#if HEAD_SCORES != HEAD_MEANS || HEAD_GATE
static HEAD_REAL product(const HEAD_REAL *one, const HEAD_REAL *other) {
  HEAD_REAL sum = 0;
  for (int i = 0; i < HEAD_ROW; i++) sum += one[i] * other[i];
  return sum;
}

/* Add the row to an inverse (Sherman and Morrison), or with a negative count take it out of it. `turned` becomes what the
 * weights of an output gain for each unit that its score of the row is too low. */
static void update(HEAD_REAL *inverse, const HEAD_REAL *row, HEAD_REAL *turned, HEAD_REAL count) {
  HEAD_REAL *at = inverse;
  for (int i = 0; i < HEAD_ROW; i++) {
    HEAD_REAL sum = 0;
    for (int j = 0; j < i; j++) {
      sum += at[j] * row[j];
      turned[j] += at[j] * row[i];
    }
    turned[i] = sum + at[i] * row[i];
    at += i + 1;
  }
  const HEAD_REAL factor = count / (1 + count * product(row, turned));
  at = inverse;
  for (int i = 0; i < HEAD_ROW; i++) {
    const HEAD_REAL scaled = factor * turned[i];
    for (int j = 0; j <= i; j++) at[j] -= scaled * turned[j];
    at += i + 1;
  }
  for (int i = 0; i < HEAD_ROW; i++) turned[i] *= factor;
}

static void learn(head *self, HEAD_REAL *weight, HEAD_REAL target) {
  const HEAD_REAL error = target - product(weight, self->row);
  for (int i = 0; i < HEAD_ROW; i++) weight[i] += self->turned[i] * error;
}
#endif

/* Take the row with its label into the heads, or with a negative count out of them. */
static void solve(head *self, int label, float count) {
#if HEAD_SUMS
  for (int i = 0; i < HEAD_ROW; i++) self->sums[label][i] += count * self->row[i];
#endif
#if HEAD_SCORES != HEAD_MEANS
  update(self->inverse, self->row, self->turned, count * (HEAD_SCORES == HEAD_JOINT ? local_scale : 1));
  for (int i = 0; i < HEAD_LABELS; i++) learn(self, self->weight[i], i == label);
#endif
#if HEAD_GATE
  update(self->gate_inverse, self->row, self->turned, count * local_scale);
  learn(self, self->gate, 1);
#endif
}

#if HEAD_SUMS
static HEAD_REAL size_of(const head *self, int label) {
  return self->samples[label] > 0 ? self->sums[label][HEAD_FEATURES] : 0;
}

static HEAD_REAL all_sizes(const head *self) {
  HEAD_REAL sum = 0;
  for (int i = 0; i < HEAD_LABELS; i++) sum += size_of(self, i);
  return sum;
}
#endif

/* Compute what follows from all samples together; labels without samples score 0. */
static void settle(head *self) {
#if HEAD_SCORES == HEAD_MEANS
  for (int label = 0; label < HEAD_LABELS; label++) {
    const HEAD_REAL share = size_of(self, label) / all_sizes(self);
    HEAD_REAL *weight = self->weight[label], squares = 0, bias = 0;
    for (int i = 0; i < HEAD_FEATURES; i++) {
      HEAD_REAL sum = 0;
      for (int j = 0; j < HEAD_LABELS; j++) sum += size_of(self, j) > 0 ? self->sums[j][i] : 0;
      weight[i] = share > 0 ? self->sums[label][i] - share * sum : 0;
      squares += weight[i] * weight[i];
      bias -= weight[i] * sum / all_sizes(self);
    }
    const HEAD_REAL length = squares > 0 ? (HEAD_REAL)sqrt(squares) : 1;
    for (int i = 0; i < HEAD_FEATURES; i++) weight[i] /= length;
    weight[HEAD_FEATURES] = bias / length;
  }
#elif HEAD_SCORES == HEAD_DISCRIMINANT
  /* Hastie, Buja and Tibshirani, 1995; labels without samples stay rows of the unit matrix */
  const HEAD_REAL all = all_sizes(self);
  for (int i = 0; i < HEAD_LABELS; i++)
    for (int j = 0; j < HEAD_LABELS; j++) {
      const HEAD_REAL own = size_of(self, i), other = size_of(self, j);
      self->turn[i][j] = i == j;
      if (own > 0 && other > 0) self->turn[i][j] -= (product(self->weight[j], self->sums[i]) - own * other / all) / other;
    }
  /* its inverse in its place (Gauss and Jordan); it is near a positive definite matrix, so that no rows are swapped */
  for (int k = 0; k < HEAD_LABELS; k++) {
    const double pivot = 1 / self->turn[k][k];
    self->turn[k][k] = 1;
    for (int j = 0; j < HEAD_LABELS; j++) self->turn[k][j] *= pivot;
    for (int i = 0; i < HEAD_LABELS; i++) {
      if (i == k) continue;
      const double factor = self->turn[i][k];
      self->turn[i][k] = 0;
      for (int j = 0; j < HEAD_LABELS; j++) self->turn[i][j] -= factor * self->turn[k][j];
    }
  }
#else
  (void)self;
#endif
}

static void forget(head *self, int sample) {
  set_row(self, codes_of(self, sample));
  solve(self, label_of(self, sample), -self->counts[sample]);
  self->samples[label_of(self, sample)]--;
  self->counts[sample] = 0;
}

/* Return the number of the sample with these features, or -1. */
static int found(const head *self, const float *features) {
  for (int sample = 0; sample < HEAD_GIVEN + HEAD_SAMPLES; sample++) {
    const int16_t *codes = codes_of(self, sample);
    int i = self->counts[sample] > 0 ? 0 : -1;
    while (i >= 0 && i < HEAD_FEATURES) {
      const int difference = codes[i] - coded(features[i]);
      i = difference > SAME || difference < -SAME ? -1 : i + 1;
    }
    if (i > 0) return sample;
  }
  return -1;
}

static int total(const head *self) {
  int sum = 0;
  for (int i = 0; i < HEAD_LABELS; i++) sum += self->samples[i];
  return sum;
}

/* Return what a new sample of a label counts: as much as makes its label's samples count as the mean label's, in 64ths. */
static float count_of(const head *self, int label) {
  int labels = 0;
  for (int i = 0; i < HEAD_LABELS; i++) labels += self->samples[i] > 0 || i == label;
  const float mean = (float)(total(self) + 1) / (float)labels;
  const float parts = rintf(64 * mean / (float)(self->samples[label] + 1));
  return (parts > 1 ? parts : 1) / 64;
}

void head_init(head *self) {
  for (int i = 0; i < HEAD_LABELS; i++) {
    self->samples[i] = 0;
    for (int j = 0; j < HEAD_ROW; j++) {
      self->weight[i][j] = given_weight[i][j];
#if HEAD_SUMS
      self->sums[i][j] = 0;
#endif
    }
  }
#if HEAD_SCORES == HEAD_JOINT
  for (int i = 0; i < HEAD_TRIANGLE; i++) self->inverse[i] = given_inverse[i];
#elif HEAD_SCORES != HEAD_MEANS
  HEAD_REAL *at = self->inverse, all = 0;
  for (int i = 0; i < HEAD_ROW; i++)
    for (int j = 0; j <= i; j++) *at++ = i == j ? 1 / penalty : 0;
#endif
  for (int sample = 0; sample < HEAD_GIVEN + HEAD_SAMPLES; sample++) {
    self->counts[sample] = sample < HEAD_GIVEN ? given_counts[sample] : 0;
    if (sample >= HEAD_GIVEN) continue;
    self->samples[given_labels[sample]]++;
    set_row(self, given_codes[sample]);
#if HEAD_SUMS
    for (int i = 0; i < HEAD_ROW; i++) self->sums[given_labels[sample]][i] += given_counts[sample] * self->row[i];
#endif
#if HEAD_SCORES == HEAD_RIDGE || HEAD_SCORES == HEAD_DISCRIMINANT
    self->row[HEAD_FEATURES] = 0; /* around the mean of these samples, the bias is apart from the features */
    update(self->inverse, self->row, self->turned, given_counts[sample]);
    all += given_counts[sample];
    self->inverse[HEAD_TRIANGLE - 1] = 1 / all;
#endif
  }
#if HEAD_GATE
  for (int i = 0; i < HEAD_TRIANGLE; i++) self->gate_inverse[i] = given_gate_inverse[i];
  for (int i = 0; i < HEAD_ROW; i++) self->gate[i] = given_gate[i];
#endif
  settle(self);
}

int head_answer(const head *self, const float *features, float *logits) {
  HEAD_REAL known[HEAD_LABELS], own[HEAD_LABELS], gated = local_offset;
  for (int label = 0; label < HEAD_LABELS; label++) {
    known[label] = known_weight[label][HEAD_FEATURES];
    own[label] = self->weight[label][HEAD_FEATURES];
    for (int i = 0; i < HEAD_FEATURES; i++) {
      known[label] += known_weight[label][i] * (features[i] - centre[i]);
      own[label] += self->weight[label][i] * (features[i] - centre[i]);
    }
  }
#if HEAD_GATE
  gated += gate_scale * self->gate[HEAD_FEATURES];
  for (int i = 0; i < HEAD_FEATURES; i++) gated += gate_scale * self->gate[i] * (features[i] - centre[i]);
#endif
#if HEAD_SCORES == HEAD_DISCRIMINANT
  const HEAD_REAL all = all_sizes(self);
  for (int i = 0; i < HEAD_LABELS; i++)
    if (size_of(self, i) > 0) own[i] = (own[i] - size_of(self, i) / all) / size_of(self, i);
#endif
  int best = 0;
  float most = 0;
  for (int label = 0; label < HEAD_LABELS; label++) {
    HEAD_REAL score = own[label], logit = known[label];
#if HEAD_SCORES == HEAD_DISCRIMINANT
    score = 0;
    if (size_of(self, label) > 0) {
      score = (HEAD_REAL)(1 - self->turn[label][label]) / (2 * size_of(self, label));
      for (int i = 0; i < HEAD_LABELS; i++)
        if (size_of(self, i) > 0) score += own[i] * (HEAD_REAL)self->turn[i][label];
    }
#endif
    if (self->samples[label] > 0 || known_labels[label]) logit += own_scale * score;
    if (self->samples[label] > 0) logit += gated;
    if (logits != NULL) logits[label] = (float)logit;
    if (label == 0 || (float)logit > most) {
      best = label;
      most = (float)logit;
    }
  }
  return best;
}

int head_add(head *self, int label, const float *features) {
  if (label < 0 || label >= HEAD_LABELS) return HEAD_NO_LABEL;
  if (!are_finite(features)) return HEAD_NOT_FINITE;
  const int same = found(self, features);
  if (same >= 0 && label_of(self, same) == label) return self->samples[label];
  int sample = HEAD_GIVEN;
  while (sample < HEAD_GIVEN + HEAD_SAMPLES && sample != same && self->counts[sample] > 0) sample++;
  if (sample == HEAD_GIVEN + HEAD_SAMPLES) return HEAD_FULL;
  if (same >= 0 && total(self) == 1) return HEAD_LAST;
  if (same >= 0) forget(self, same);
  int16_t *codes = self->codes[sample - HEAD_GIVEN];
  for (int i = 0; i < HEAD_FEATURES; i++) codes[i] = coded(features[i]);
  self->labels[sample - HEAD_GIVEN] = (uint16_t)label;
  self->counts[sample] = count_of(self, label);
  set_row(self, codes);
  solve(self, label, self->counts[sample]);
  self->samples[label]++;
  settle(self);
  return self->samples[label];
}

int head_forget(head *self, int label) {
  if (label < 0 || label >= HEAD_LABELS) return HEAD_NO_LABEL;
  const int count = self->samples[label];
  if (count > 0 && count == total(self)) return HEAD_LAST;
  for (int sample = 0; sample < HEAD_GIVEN + HEAD_SAMPLES; sample++)
    if (self->counts[sample] > 0 && label_of(self, sample) == label) forget(self, sample);
  settle(self);
  return count;
}

int head_forget_sample(head *self, const float *features) {
  if (!are_finite(features)) return HEAD_NOT_FINITE;
  const int sample = found(self, features);
  if (sample < 0) return 0;
  if (total(self) == 1) return HEAD_LAST;
  forget(self, sample);
  settle(self);
  return 1;
}
