/* codes.h - reports of weft check as they are without codes, for tests of messages. */
#ifndef WEFT_TESTS_CODES_H
#define WEFT_TESTS_CODES_H

/* A copy in the scratch arena without " [CODE]" at ends of lines, where CODE is one of
 * vm/base/diag.def. */
const char *without_codes(const char *text);

#endif
