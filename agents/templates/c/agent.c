/* {{name}}: asks a tool for the time and outputs its answer. */
#include "caxton.h"

CX_RUN {
  CX_BUFFER(params, 256);
  cx_map(&params, 1);
  cx_str(&params, "timezone");
  cx_str(&params, "UTC");
  cx_reply reply = cx_call("mcp__time__get_current_time", &params);

  CX_BUFFER(result, 8192);
  cx_map(&result, 1);
  if (reply.status == CX_OK) {
    cx_str(&result, "time");
    cx_copy(&result, cx_find(reply.value, "message"));
  } else {
    cx_log(CX_WARNING, "there is no answer");
    cx_str(&result, "error");
    cx_copy(&result, cx_find(reply.value, "error.code"));
  }
  return cx_output(&result) ? 0 : 1;
}
