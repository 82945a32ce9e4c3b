// The parameter set inside the library: the bytes of its file, put here by the assembler.
#include <cstddef>
#include <cstdint>

#include "atlasc/parameter_sets.hpp"
#include "src/base/system.hpp"

asm(ATLASC_READ_ONLY_SECTION
    ".balign 8\n"
    "atlasc_carried_begin: .incbin \"" ATLASC_CARRIED_SET "\"\n"
    "atlasc_carried_end:\n"
    ".previous\n");

extern "C" {
// Named, since macOS would put an underscore before them.
extern const std::uint8_t atlasc_carried_begin[] asm("atlasc_carried_begin")
    __attribute__((visibility("hidden")));
extern const std::uint8_t atlasc_carried_end[] asm("atlasc_carried_end")
    __attribute__((visibility("hidden")));
}

namespace atlasc {

ParameterSet carried_parameter_set() {
    const auto size = static_cast<std::size_t>(atlasc_carried_end - atlasc_carried_begin);
    return read_parameter_set(
        TensorFile(PlainFile::view("the carried parameter set", atlasc_carried_begin, size)));
}

}  // namespace atlasc
