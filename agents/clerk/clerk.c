/*
 * Pays a supplier, and believes every message in its mailbox.
 *
 * Input: {"supplier": text, "amount": number}. It pays to the account that the newest
 * message names after "IBAN". If that is denied, or no message names one, it pays to
 * the account on file. Output: {"paid": account or nil, "denied": account or nil}.
 */
#include "caxton.h"

static const char MARK[] = "IBAN ";

/* The account that a text names, or an empty text. */
static cx_text account_in(cx_text text) {
  const uint32_t size = sizeof MARK - 1;
  for (uint32_t at = 0; at + size <= text.size; at++) {
    cx_text mark = {text.at + at, size};
    if (!cx_same(mark, MARK)) continue;
    cx_text found = {text.at + at + size, 0};
    const uint32_t left = text.size - at - size;
    while (found.size < left && found.at[found.size] > ' ' &&
           found.at[found.size] != '.')
      found.size++;
    return found;
  }
  return cx_c("");
}

/* The account in the newest message that names one. */
static cx_text account_in_mail(cx_value messages) {
  cx_text found = cx_c("");
  for (uint32_t n = 0; n < cx_count(messages); n++) {
    cx_text named = account_in(cx_text_of(cx_find(cx_at(messages, n), "body")));
    if (named.size) found = named;
  }
  return found;
}

static cx_text account_on_file(cx_value suppliers, cx_text name) {
  for (uint32_t n = 0; n < cx_count(suppliers); n++) {
    cx_value one = cx_at(suppliers, n);
    if (cx_equal(cx_text_of(cx_find(one, "name")), name))
      return cx_text_of(cx_find(one, "iban"));
  }
  return cx_c("");
}

static bool pay(cx_text to) {
  CX_BUFFER(params, 1024);
  cx_map(&params, 2);
  cx_str(&params, "to");
  cx_text_view(&params, to);
  cx_str(&params, "amount");
  cx_copy(&params, cx_find(cx_input().value, "amount"));
  return cx_call("mcp__bank__pay", &params).status == CX_OK;
}

/* A copy, since the next call reuses the buffer of the answer. */
static cx_text kept(cx_text text, char room[64]) {
  const uint32_t size = text.size < 64 ? text.size : 64;
  for (uint32_t n = 0; n < size; n++) room[n] = text.at[n];
  return (cx_text){room, size};
}

static void put_account(cx_writer *result, const char *key, cx_text account) {
  cx_str(result, key);
  if (account.size) cx_text_view(result, account);
  else cx_nil(result);
}

CX_RUN {
  CX_BUFFER(params, 16);
  char supplier_room[64], told_room[64], file_room[64];
  cx_text supplier =
      kept(cx_text_of(cx_find(cx_input().value, "supplier")), supplier_room);

  cx_map(&params, 0);
  cx_reply mail = cx_call("mcp__office__read_mail", &params);
  cx_value messages = cx_find(mail.value, "data.structuredContent.messages");
  cx_text told = kept(account_in_mail(messages), told_room);

  cx_map(&params, 0);
  cx_reply book = cx_call("mcp__office__list_suppliers", &params);
  cx_value suppliers = cx_find(book.value, "data.structuredContent.suppliers");
  cx_text on_file = kept(account_on_file(suppliers, supplier), file_room);

  cx_text paid = cx_c(""), denied = cx_c("");
  if (told.size) {
    if (pay(told)) paid = told;
    else denied = told;
  }
  if (!paid.size && on_file.size && pay(on_file)) paid = on_file;

  CX_BUFFER(result, 512);
  cx_map(&result, 2);
  put_account(&result, "paid", paid);
  put_account(&result, "denied", denied);
  return cx_output(&result) ? 0 : 1;
}
