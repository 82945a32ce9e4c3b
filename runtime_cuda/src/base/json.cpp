#include "atlasc/base/json.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "atlasc/base/error.hpp"

namespace atlasc {
namespace {

// What the text of a program needs, {"outputs": [{"result": {"layout": {"layout": text}}}]}, and a few
// thousand calls and arrays. A value takes up to 200 bytes of memory.
constexpr int max_depth = 5;
constexpr std::size_t max_values = std::size_t{1} << 18;
constexpr std::size_t max_string = std::size_t{1} << 16;
constexpr std::size_t max_name = 512;
constexpr std::size_t max_number = 40;

class Parser {
public:
    explicit Parser(const std::string& text) : text_(text) {}

    Json whole() {
        Json result = value(0);
        skip_space();
        if (at_ != text_.size()) {
            fail("more text than one value");
        }
        return result;
    }

private:
    [[noreturn]] void fail(const std::string& why) const {
        throw Error("a header is not valid", why + " at byte " + std::to_string(at_));
    }

    void skip_space() {
        while (at_ < text_.size() && std::string(" \t\r\n").find(text_[at_]) != std::string::npos) {
            ++at_;
        }
    }

    char peek() {
        skip_space();
        return at_ < text_.size() ? text_[at_] : '\0';
    }

    bool take(char wanted) {
        if (peek() != wanted) {
            return false;
        }
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!take(wanted)) {
            fail(std::string("expected '") + wanted + "'");
        }
    }

    Json value(int depth) {
        if (depth > max_depth) {
            fail("values are nested too deeply");
        }
        if (++values_ > max_values) {
            fail("there are too many values");
        }
        switch (peek()) {
            case '{':
                return {object(depth)};
            case '[':
                return {array(depth)};
            case '"':
                return {string()};
            case 't':
                return {word("true", 1)};
            case 'f':
                return {word("false", 0)};
            default:
                return number();
        }
    }

    Json::Object object(int depth) {
        Json::Object result;
        expect('{');
        if (take('}')) {
            return result;
        }
        do {
            peek();
            const std::string name = string();
            if (name.size() > max_name || has_controls(name)) {
                fail("a name is too long, or has control characters");
            }
            expect(':');
            if (!result.emplace(name, value(depth + 1)).second) {
                fail("the name " + name + " occurs twice");
            }
        } while (take(','));
        expect('}');
        return result;
    }

    Json::Array array(int depth) {
        Json::Array result;
        expect('[');
        if (take(']')) {
            return result;
        }
        do {
            result.push_back(value(depth + 1));
        } while (take(','));
        expect(']');
        return result;
    }

    /// A truth value, which is read as a number.
    std::uint64_t word(const std::string& expected, std::uint64_t meaning) {
        if (text_.compare(at_, expected.size(), expected) != 0) {
            fail("expected a value");
        }
        at_ += expected.size();
        return meaning;
    }

    Json number() {
        const std::size_t start = at_;
        const bool negative = at_ < text_.size() && text_[at_] == '-';
        at_ += negative ? 1 : 0;
        const std::uint64_t whole = integer();
        const std::size_t end = text_.find_first_not_of("0123456789.eE+-", at_);
        const std::string all = text_.substr(start, end == std::string::npos ? end : end - start);
        if (at_ - start == all.size()) {
            return negative ? Json{-static_cast<double>(whole)} : Json{whole};
        }
        char* rest = nullptr;
        const double result = std::strtod(all.c_str(), &rest);
        if (all.size() > max_number || *rest != '\0' || !std::isfinite(result)) {
            fail("a number is none, or too long");
        }
        at_ = start + all.size();
        return {result};
    }

    std::uint64_t integer() {
        const std::size_t start = at_;
        std::uint64_t result = 0;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
            if (at_ - start == 18) {
                fail("a number is too large");
            }
            result = 10 * result + static_cast<std::uint64_t>(text_[at_++] - '0');
        }
        if (at_ == start) {
            fail("expected a value");
        }
        return result;
    }

    std::string string() {
        std::string result;
        expect('"');
        while (at_ < text_.size() && text_[at_] != '"') {
            if (result.size() > max_string) {
                fail("a string is too long");
            }
            if (text_[at_] == '\\') {
                ++at_;
                escaped(result);
            } else {
                result += text_[at_++];
            }
        }
        if (at_ == text_.size()) {
            fail("a string does not end");
        }
        ++at_;
        return result;
    }

    void escaped(std::string& result) {
        static const std::string letters = "\"\\/bfnrt";
        static const std::string meanings = "\"\\/\b\f\n\r\t";
        const char letter = at_ < text_.size() ? text_[at_] : '\0';
        ++at_;
        if (const std::size_t found = letters.find(letter); letter && found != std::string::npos) {
            result += meanings[found];
        } else if (letter == 'u') {
            append_utf8(result, hexadecimal());
        } else {
            fail("an escape is not known");
        }
    }

    unsigned hexadecimal() {
        if (text_.size() - at_ < 4) {
            fail("an escape is cut off");
        }
        unsigned code = 0;
        for (int digit = 0; digit < 4; ++digit) {
            static const std::string digits = "0123456789abcdef0123456789ABCDEF";
            const std::size_t found = digits.find(text_[at_++]);
            if (found == std::string::npos) {
                fail("an escape is not hexadecimal");
            }
            code = 16 * code + static_cast<unsigned>(found % 16);
        }
        if (code >= 0xD800 && code < 0xE000) {
            fail("characters beyond the basic plane must be written as UTF-8");
        }
        return code;
    }

    static void append_utf8(std::string& result, unsigned code) {
        if (code < 0x80) {
            result += static_cast<char>(code);
        } else if (code < 0x800) {
            result += static_cast<char>(0xC0 | (code >> 6));
            result += static_cast<char>(0x80 | (code & 0x3F));
        } else {
            result += static_cast<char>(0xE0 | (code >> 12));
            result += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
            result += static_cast<char>(0x80 | (code & 0x3F));
        }
    }

    static bool has_controls(const std::string& name) {
        return std::any_of(name.begin(), name.end(), [](unsigned char letter) {
            return letter < 0x20 || letter == 0x7F;
        });
    }

    const std::string& text_;
    std::size_t at_ = 0;
    std::size_t values_ = 0;
};

template <typename Kind, typename Value>
const Kind& of_kind(const Value& value, const char* name) {
    const Kind* found = std::get_if<Kind>(&value);
    if (found == nullptr) {
        throw Error("a header is not valid", std::string("a value is not ") + name);
    }
    return *found;
}

}  // namespace

const Json::Object& Json::object() const { return of_kind<Object>(value, "an object"); }
const Json::Array& Json::array() const { return of_kind<Array>(value, "an array"); }
const std::string& Json::string() const { return of_kind<std::string>(value, "a string"); }
std::uint64_t Json::integer() const { return of_kind<std::uint64_t>(value, "an integer"); }

double Json::real() const {
    const auto* whole = std::get_if<std::uint64_t>(&value);
    return whole != nullptr ? static_cast<double>(*whole) : of_kind<double>(value, "a number");
}

Json parse_json(const std::string& text) { return Parser(text).whole(); }

std::string json_string(const std::string& text) {
    static const char digits[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            result += '\\';
            result += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            result += "\\u00";
            result += digits[letter >> 4];
            result += digits[letter & 15];
        } else {
            result += letter;
        }
    }
    return result + '"';
}

}  // namespace atlasc
