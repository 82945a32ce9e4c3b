// The parameter set inside the library: the bytes of its file, put here by the assembler.
#include <cstddef>
#include <cstdint>

#include "atlasc/parameter_sets.hpp"

asm(".section .rodata\n"
    ".balign 8\n"
    "atlasc_carried_begin: .incbin \"" ATLASC_CARRIED_SET "\"\n"
    "atlasc_carried_end:\n"
    ".previous\n");

extern "C" {
extern const std::uint8_t atlasc_carried_begin[] __attribute__((visibility("hidden")));
extern const std::uint8_t atlasc_carried_end[] __attribute__((visibility("hidden")));
}

namespace atlasc {

ParameterSet carried_parameter_set() {
    const auto size = static_cast<std::size_t>(atlasc_carried_end - atlasc_carried_begin);
    return read_parameter_set(
        TensorFile(PlainFile::view("the carried parameter set", atlasc_carried_begin, size)));
}

}  // namespace atlasc
