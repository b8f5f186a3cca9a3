/* lua_run.h - runs a test's Lua code in the state of a script. */
#ifndef WEFT_TESTS_LUA_RUN_H
#define WEFT_TESTS_LUA_RUN_H

/* Runs the code as the chunk "=test" with these names: weft, PLANS (the folder of plans,
 * with its slash), SCRATCH (that of the test, as of scratch.h), and
 *   same(got, want)            equal values
 *   prints(value, text)        tostring(value) is the text
 *   says(value, text)          tostring(value) has the text in it
 *   raises(text, f, ...)       f(...) raises an error with the text in it
 * An error of the code, with its line, fails the test. */
void lua_run(const char *code);

#endif
