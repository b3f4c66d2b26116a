/*
 * Asks for the weather, then calls a tool that is not granted.
 *
 * Input: {"location": text}; without one, Seattle. Output: a map with the
 * answers and the denial.
 */
#include "caxton.h"

static void put_location(cx_writer *params, cx_value input) {
  cx_text location = cx_text_of(cx_find(input, "location"));
  cx_map(params, 1);
  cx_str(params, "location");
  if (location.size) cx_text_view(params, location);
  else cx_str(params, "Seattle");
}

/* "status" and "message" of a reply, under one key. */
static void put_answer(cx_writer *result, const char *key, cx_reply reply) {
  cx_str(result, key);
  cx_map(result, 2);
  cx_str(result, "status");
  cx_copy(result, cx_find(reply.value, "status"));
  cx_str(result, "message");
  cx_copy(result, cx_find(reply.value, "message"));
}

CX_RUN {
  CX_BUFFER(params, 1024);
  CX_BUFFER(result, 16384);
  cx_map(&result, 4);

  put_location(&params, cx_input().value);
  cx_reply weather = cx_call("weather", &params);
  cx_text summary = cx_text_of(cx_find(weather.value, "message"));
  cx_log_view(weather.status == CX_OK ? CX_INFO : CX_WARNING, summary);
  cx_str(&result, "summary");
  cx_text_view(&result, summary);

  put_location(&params, cx_input().value);
  put_answer(&result, "forecast", cx_call("mcp__webhook__forecast", &params));

  cx_map(&params, 1);
  cx_str(&params, "text");
  cx_str(&params, "is anybody there?");
  cx_reply echo = cx_call("mcp__demo__echo", &params);
  cx_str(&result, "denied");
  cx_bool(&result, echo.status == CX_DENIED);
  put_answer(&result, "echo", echo);

  if (cx_output(&result)) return 0;
  cx_log(CX_ERROR, "the answers are too long to pass on");
  return 1;
}
