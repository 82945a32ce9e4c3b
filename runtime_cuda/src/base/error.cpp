#include "atlasc/base/error.hpp"

#include <cstdint>

#include "atlasc/base/files.hpp"

namespace atlasc {

std::string printable(const std::string& text) {
    std::string result;
    for (const char letter : text) {
        if (letter >= 0x20 && letter < 0x7F) {
            result += letter;
        } else {
            const auto byte = static_cast<std::uint8_t>(letter);
            result += "\\x" + hexadecimal(&byte, 1);
        }
    }
    return result;
}

}  // namespace atlasc
