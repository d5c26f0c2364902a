/* Carries out what it reads, for `tuner_c.program`: records of what to do, a label, how often, and features. */
#include <head.h>

#include <stdio.h>
#include <time.h>

static head self;

int main(void) {
  struct {
    int32_t action, label, times;
    float features[HEAD_FEATURES];
  } asked;
  static struct {
    int32_t result;
    float microseconds, logits[HEAD_LABELS];
  } done;
  head_init(&self);
  while (fread(&asked, sizeof asked, 1, stdin) == 1) {
    const clock_t began = clock();
    for (int32_t i = 0; i < asked.times; i++) {
      if (asked.action == 0) done.result = head_answer(&self, asked.features, done.logits);
      if (asked.action == 1) done.result = head_add(&self, asked.label, asked.features);
      if (asked.action == 2) done.result = head_forget(&self, asked.label);
      if (asked.action == 3) done.result = head_forget_sample(&self, asked.features);
      if (asked.action == 4) done.result = (head_init(&self), (int32_t)sizeof self);
    }
    done.microseconds = (float)(clock() - began) * 1e6F / (float)CLOCKS_PER_SEC / (float)asked.times;
    fwrite(&done, sizeof done, 1, stdout);
  }
  return 0;
}
