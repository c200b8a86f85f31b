/* Hides AVX-512, VNNI and AMX from the libraries of a process, so that they run as on a CPU that has AVX2 alone.
 *
 * Libraries ask the instruction `cpuid` what the CPU has. Linux can make it fault (arch_prctl(2), ARCH_SET_CPUID, where
 * /proc/cpuinfo names cpuid_fault); the handler then executes it and clears the bits of what is hidden. The switch is
 * per thread and lasts until the next exec, and threads inherit it: load this file first, as LD_PRELOAD or by dlopen.
 * Compilers, which handle that signal themselves, are left as they are.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012 }; /* ARCH_SET_CPUID of asm/prctl.h */

/* Bits of leaf 7 (Intel's manual, volume 2A, table 3-8). */
static const unsigned hidden_ebx = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
static const unsigned hidden_ecx = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
static const unsigned hidden_edx = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;
static const unsigned hidden_eax_1 = 1u << 4 | 1u << 5; /* of subleaf 1: AVX-VNNI, AVX512-BF16 */
static const unsigned hidden_edx_1 = 1u << 4 | 1u << 5 | 1u << 19; /* AVX-VNNI-INT8, AVX-NE-CONVERT, AVX10 */

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* no cpuid: end as without this handler */
        signal(number, SIG_DFL);
        return;
    }
    const unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX];
    unsigned eax, ebx, ecx, edx;
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    if (leaf == 7 && subleaf == 0) {
        ebx &= ~hidden_ebx;
        ecx &= ~hidden_ecx;
        edx &= ~hidden_edx;
    } else if (leaf == 7 && subleaf == 1) {
        eax &= ~hidden_eax_1;
        edx &= ~hidden_edx_1;
    }
    registers[REG_RAX] = eax;
    registers[REG_RBX] = ebx;
    registers[REG_RCX] = ecx;
    registers[REG_RDX] = edx;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void) {
    struct sigaction action;
    if (strncmp(program_invocation_short_name, "python", 6) != 0) {
        return;
    }
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGSEGV, &action, NULL) == 0) {
        syscall(SYS_arch_prctl, SET_CPUID, 0); /* where it fails, nothing is hidden */
    }
}
