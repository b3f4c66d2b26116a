/*
 * Makes batches, as its input says.
 *
 * Input: {"batches": [[[name, params], ...], ...]}. Output: for each batch its
 * status, the time after it, and status and message of each answer.
 */
#define CX_REPLY_SIZE 64
#include "caxton.h"

static void report(cx_writer *result, cx_reply replies, uint32_t count) {
  cx_array(result, 3);
  cx_int(result, replies.status);
  cx_int(result, cx_now());
  cx_array(result, count);
  for (uint32_t i = 0; i < count; i++) {
    cx_reply answer = cx_answer(replies, i);
    cx_array(result, 2);
    cx_int(result, answer.status);
    cx_copy(result, cx_find(answer.value, "message"));
  }
}

CX_RUN {
  CX_BUFFER(result, 1 << 20);
  static uint8_t kept[1 << 20];
  CX_BATCH(batch, 65536);
  cx_value input = cx_first(cx_input().value);
  if (input.size > sizeof kept) return 1;
  /* The next reply takes the place of the input. */
  for (uint32_t i = 0; i < input.size; i++) kept[i] = input.at[i];
  input.at = kept;

  cx_value batches = cx_find(input, "batches");
  cx_array(&result, cx_count(batches));
  for (uint32_t i = 0; i < cx_count(batches); i++) {
    cx_value items = cx_at(batches, i);
    for (uint32_t k = 0; k < cx_count(items); k++) {
      char name[129];
      cx_text wanted = cx_text_of(cx_at(cx_at(items, k), 0));
      if (wanted.size >= sizeof name) return 1;
      for (uint32_t at = 0; at < wanted.size; at++) name[at] = wanted.at[at];
      name[wanted.size] = 0;
      cx_copy(cx_add(&batch, name), cx_at(cx_at(items, k), 1));
    }
    report(&result, cx_call_many(&batch), cx_count(items));
  }
  return cx_output(&result) ? 0 : 1;
}
