/*
 * Calls one tool repeatedly: the agent of the benchmarks.
 *
 * Input: {"tool": name, "n": calls, "text": text}. Output: the number of
 * successful calls.
 */
#include "caxton.h"

CX_RUN {
  static char tool[129], text[65536];
  cx_value input = cx_input().value;
  cx_text wanted = cx_text_of(cx_find(input, "tool"));
  cx_text said = cx_text_of(cx_find(input, "text"));
  int64_t calls = cx_int_of(cx_find(input, "n")), fine = 0;
  if (wanted.size >= sizeof tool || said.size > sizeof text) return 1;

  /* The next reply overwrites the input. */
  for (uint32_t i = 0; i < wanted.size; i++) tool[i] = wanted.at[i];
  for (uint32_t i = 0; i < said.size; i++) text[i] = said.at[i];
  said.at = text;

  for (int64_t i = 0; i < calls; i++) {
    CX_BUFFER(params, 65536);
    cx_map(&params, 1);
    cx_str(&params, "text");
    cx_text_view(&params, said);
    if (cx_call(tool, &params).status == CX_OK) fine++;
  }

  CX_BUFFER(result, 16);
  cx_int(&result, fine);
  return cx_output(&result) ? 0 : 1;
}
