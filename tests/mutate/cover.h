/* cover.h - included before everything else where it is recorded which lines a suite
 * runs: processes that leave by _exit write down what they ran, too. No header is needed,
 * as the names of one might be those of the file. */
void __gcov_dump(void);
__attribute__((noreturn)) void _Exit(int status);
__attribute__((noreturn)) void _exit(int status) __asm__("cover_exit");

__attribute__((noreturn, weak)) void cover_exit(int status);
__attribute__((noreturn, weak)) void cover_exit(int status) {
  __gcov_dump();
  _Exit(status);
}
