#include "devices/host/vectors/cpu.hpp"

#include <cstdlib>
#include <string>

#include "atlasc/base/error.hpp"

namespace atlasc::ckks {
namespace {

#ifdef ATLASC_X86

bool runs(Cpu wanted) {
    switch (wanted) {
        case Cpu::ifma:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
                   __builtin_cpu_supports("avx512ifma");
        case Cpu::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        case Cpu::portable:
            break;
    }
    return true;
}

#else

bool runs(Cpu wanted) { return wanted == Cpu::portable; }

#endif

struct Name {
    const char* text;
    Cpu cpu;
};
constexpr Name names[] = {{"ifma", Cpu::ifma}, {"avx2", Cpu::avx2}, {"portable", Cpu::portable}};

const Name& chosen() {
    const char* wanted = std::getenv("ATLASC_CPU");
    for (const Name& name : names) {
        if (wanted == nullptr ? runs(name.cpu) : wanted == std::string(name.text)) {
            if (!runs(name.cpu)) {
                throw Error("this processor cannot run what ATLASC_CPU names",
                            "it lacks the instructions of \"" + std::string(wanted) + "\"",
                            "unset ATLASC_CPU, and the fastest kernels that can run are chosen");
            }
            return name;
        }
    }
    throw Error("ATLASC_CPU names no kernels", "it is \"" + std::string(wanted) + "\"",
                "set it to ifma, avx2 or portable, or unset it for the fastest that can run");
}

const Name& one() {
    static const Name& name = chosen();
    return name;
}

}  // namespace

Cpu cpu() { return one().cpu; }

const char* cpu_name() { return one().text; }

}  // namespace atlasc::ckks
