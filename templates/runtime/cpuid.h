// What an instruction set asks of a CPU.
#pragma once

// Bits that CPUID must have in a register, 0 to 3 for eax to edx, of a leaf.
typedef struct { unsigned leaf, subleaf, index, bits; } Cpuid;
