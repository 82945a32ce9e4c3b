// The text form of layouts.
#include <algorithm>
#include <sstream>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/layout.hpp"

namespace atlasc {
namespace {

constexpr std::size_t max_field_bits = 40;  // of one field

[[noreturn]] void fail(const std::string& text) {
    throw Error("a layout cannot be read", "\"" + text + "\" is not [fields | fields | extents]");
}

/// The number behind a separator, which it must reach to the end.
std::size_t number(const std::string& word, std::size_t from) {
    const auto found = plain_number(word.substr(std::min(from, word.size())));
    if (!found) {
        fail(word);
    }
    return *found;
}

int bits(const std::string& word, std::size_t from) {
    const std::size_t count = number(word, from);
    if (count > max_field_bits) {
        fail(word);
    }
    return static_cast<int>(count);
}

Field parse_field(const std::string& word) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos || colon < 1) {
        fail(word);
    }
    Field field{word[0], bits(word, colon + 1), 0};
    if (colon > 1) {
        if (word[1] != '.') {
            fail(word);
        }
        field.low = bits(word.substr(0, colon), 2);
    }
    return field;
}

std::vector<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> result;
    for (std::string word; stream >> word;) {
        result.push_back(word);
    }
    return result;
}

}  // namespace

Layout::Layout(const std::string& text) {
    const std::size_t first = text.find('|');
    const std::size_t second = first == std::string::npos ? first : text.find('|', first + 1);
    if (second == std::string::npos || text.front() != '[' || text.back() != ']') {
        fail(text);
    }
    for (const std::string& word : words(text.substr(1, first - 1))) {
        fields_.push_back(parse_field(word));
    }
    for (const std::string& word : words(text.substr(first + 1, second - first - 1))) {
        outer_.push_back(parse_field(word));
    }
    for (const std::string& word : words(text.substr(second + 1, text.size() - second - 2))) {
        if (word.size() < 3 || word[1] != '=') {
            fail(word);
        }
        extents_.emplace_back(word[0], number(word, 2));
    }
    *this = Layout(fields_, outer_, extents_);
    text_ = text;
}

}  // namespace atlasc
