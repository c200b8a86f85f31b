// What kernels call to share their work among threads: SHARE and SHARE_APART, which the header of the kernels declares.
#pragma once

// Inputs, outputs, state, constants, workspace, threads, one of a thread's own.
enum { POINTERS = MAX_INPUTS + MAX_OUTPUTS + 5 };
