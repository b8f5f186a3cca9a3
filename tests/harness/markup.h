/* markup.h - HTML and SVG, as far as tests look into them. */
#ifndef WEFT_TEST_MARKUP_H
#define WEFT_TEST_MARKUP_H

/* Fails unless every element is closed, in order, but those that have no end, every
 * attribute is quoted, and there are more than five elements. */
void markup_is_closed(const char *text);

#endif
