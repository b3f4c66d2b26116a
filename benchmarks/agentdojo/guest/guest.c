/*
 * Makes the calls that it is given, one by one, whatever they are answered.
 *
 * Input: {"calls": [[name, params], ...]}. Output: the number of answers "ok".
 */
#include "caxton.h"

#define ROOM (1 << 20)

CX_RUN {
  static uint8_t kept[ROOM];
  CX_BUFFER(params, 1 << 16);
  CX_BUFFER(result, 16);
  cx_value input = cx_first(cx_input().value);
  if (input.size > ROOM) return 1;

  /* The next reply overwrites the input. */
  for (uint32_t i = 0; i < input.size; i++) kept[i] = input.at[i];
  cx_value calls = cx_find((cx_value){kept, input.size}, "calls");
  uint32_t count = cx_count(calls);
  int64_t fine = 0;

  cx_value next = cx_inside(calls);
  for (uint32_t i = 0; i < count; i++, next = cx_after(next)) {
    char name[129];
    cx_value call = cx_first(next);
    cx_text wanted = cx_text_of(cx_at(call, 0));
    if (wanted.size >= sizeof name) return 1;
    for (uint32_t at = 0; at < wanted.size; at++) name[at] = wanted.at[at];
    name[wanted.size] = 0;
    cx_copy(&params, cx_at(call, 1));
    if (cx_call(name, &params).status == CX_OK) fine++;
  }

  cx_int(&result, fine);
  return cx_output(&result) ? 0 : 1;
}
