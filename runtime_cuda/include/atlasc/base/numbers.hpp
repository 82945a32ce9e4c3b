// Constants, and numbers in foreign texts.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

namespace atlasc {

inline constexpr double pi = 3.14159265358979323846;

/// A number with this many significant digits, for messages.
inline std::string short_text(double number, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    return text;
}

/// A decimal number in a program's notation: at most nine digits, no sign, no leading zero. Nothing
/// for any other text.
inline std::optional<std::size_t> plain_number(const std::string& text) {
    if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) {
        return std::nullopt;
    }
    std::size_t number = 0;
    for (const char digit : text) {
        if (digit < '0' || digit > '9') {
            return std::nullopt;
        }
        number = 10 * number + static_cast<std::size_t>(digit - '0');
    }
    return number;
}

}  // namespace atlasc
