/* @title@: a linear head that answers, learns and forgets in fixed memory. C99.
 *
 * A sample is what the frozen blocks of the network give of it: HEAD_FEATURES floats; logits are HEAD_LABELS floats. Adding or forgetting a sample is a
 * rank-one update, which gives the ridge solution of all samples that are there: nothing is approximated but by rounding.
 * What a sample counts, the penalties and the scales of the scores are those of the export.
 *
 * All functions work on one struct, which the caller places; a copy of its bytes is a copy of what was learned. Nothing
 * is allocated. Define HEAD_REAL as double for twice the memory and less rounding.
 */
#ifndef HEAD_H
#define HEAD_H

#include <stdint.h>

#ifndef HEAD_REAL
#define HEAD_REAL float
#endif

#define HEAD_FEATURES @features@
#define HEAD_LABELS @labels@
/* Samples that the head was exported with, and those that can be added to them. */
#define HEAD_GIVEN @given@
#ifndef HEAD_SAMPLES
#define HEAD_SAMPLES @samples@
#endif
/* Whether a gate tells the user's samples from those that the model knew before. */
#define HEAD_GATE @gate@
/* What scores the user's labels: a ridge head, a discriminant, means of labels, or a ridge head of all labels. */
#define HEAD_RIDGE 0
#define HEAD_DISCRIMINANT 1
#define HEAD_MEANS 2
#define HEAD_JOINT 3
#define HEAD_SCORES @scores@
#define HEAD_SUMS (HEAD_SCORES == HEAD_DISCRIMINANT || HEAD_SCORES == HEAD_MEANS)

/* Answers of functions that change the head: what is below 0 has changed nothing. */
enum {
  HEAD_FULL = -1,       /* HEAD_SAMPLES were added: forget some, or export again */
  HEAD_NO_LABEL = -2,   /* there is no such label */
  HEAD_NOT_FINITE = -3, /* a feature is not a finite number */
  HEAD_LAST = -4        /* without these samples there would be none */
};

#define HEAD_ROW (HEAD_FEATURES + 1)
#define HEAD_TRIANGLE (HEAD_ROW * (HEAD_ROW + 1) / 2)

typedef struct {
#if HEAD_SCORES != HEAD_MEANS
  HEAD_REAL inverse[HEAD_TRIANGLE]; /* of the penalised sums of the samples, by rows up to the diagonal */
#endif
#if HEAD_SUMS
  HEAD_REAL sums[HEAD_LABELS][HEAD_ROW]; /* of the rows of each label's samples, and of what they count */
#endif
#if HEAD_SCORES == HEAD_DISCRIMINANT
  double turn[HEAD_LABELS][HEAD_LABELS]; /* mixes ridge scores to those of the discriminant */
#endif
  HEAD_REAL weight[HEAD_LABELS][HEAD_ROW]; /* with the bias last */
#if HEAD_GATE
  HEAD_REAL gate_inverse[HEAD_TRIANGLE];
  HEAD_REAL gate[HEAD_ROW];
#endif
  HEAD_REAL row[HEAD_ROW], turned[HEAD_ROW]; /* of the sample at hand, and its product with an inverse */
  float counts[HEAD_GIVEN + HEAD_SAMPLES];   /* what each sample counts; 0 of one that is not there */
  int32_t samples[HEAD_LABELS];              /* how many of each label are there */
  int16_t codes[HEAD_SAMPLES > 0 ? HEAD_SAMPLES : 1][HEAD_FEATURES];
  uint16_t labels[HEAD_SAMPLES > 0 ? HEAD_SAMPLES : 1];
} head;

extern const char *const head_names[HEAD_LABELS];

/* Begin as exported. */
void head_init(head *self);

/* Return the label's number, and its logits if `logits` is not NULL: their softmax are probabilities. */
int head_answer(const head *self, const float *features, float *logits);

/* Learn a sample; return how many there are of its label. One that is there already gets the new label. */
int head_add(head *self, int label, const float *features);

/* Forget all samples of a label, those of the export too; return how many there were. */
int head_forget(head *self, int label);

/* Forget one sample; return 1, or 0 if it is not there. */
int head_forget_sample(head *self, const float *features);

#endif
