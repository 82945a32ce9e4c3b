// Which kernels this process runs.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define ATLASC_X86
#endif

namespace atlasc::ckks {

/// What kernels are written with, the slowest first. Processors other than x86-64 run `portable`.
enum class Cpu { portable, avx2, ifma };

/// The fastest that this processor can run, or the one that ATLASC_CPU names: "portable", "avx2" or
/// "ifma". Throws Error: it names none, or one that this processor lacks.
Cpu cpu();

/// Its name, as ATLASC_CPU has it.
const char* cpu_name();

}  // namespace atlasc::ckks
