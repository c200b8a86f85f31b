// The weights, which the assembler puts into the object: the file MLAOT_WEIGHTS behind its first WEIGHTS_SKIPPED bytes.
#pragma once

#define TEXT_OF(text) #text
#define STRING(text) TEXT_OF(text)
#define WEIGHTS_BINARY ".incbin \"" MLAOT_WEIGHTS "\", " STRING(WEIGHTS_SKIPPED) "\n.text\n"

#if defined(_WIN32)
__asm__(".section .rdata,\"dr\"\n.balign 64\n" STRING(WEIGHTS) ":\n" WEIGHTS_BINARY);
#elif defined(__APPLE__)
__asm__(".section __TEXT,__const\n.balign 64\n_" STRING(WEIGHTS) ":\n" WEIGHTS_BINARY);
#else
__asm__(".section .rodata\n.balign 64\n" STRING(WEIGHTS) ":\n" WEIGHTS_BINARY);
#endif
extern const char WEIGHTS[] __attribute__((visibility("hidden")));
