// Reads the part of JSON that headers of safetensors files, programs and ledgers use.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace atlasc {

/// An object, an array, a string or a number. Truth values are read as 1 and 0, and null is not read.
struct Json {
    using Object = std::map<std::string, Json>;
    using Array = std::vector<Json>;

    std::variant<std::uint64_t, double, std::string, Array, Object> value;

    /// The value as one kind; each throws Error for another kind.
    const Object& object() const;
    const Array& array() const;
    const std::string& string() const;
    std::uint64_t integer() const;
    double real() const;
};

/// The value of a whole text. Throws Error with the position of the first mistake.
Json parse_json(const std::string& text);

/// A string in JSON notation, quotes included.
std::string json_string(const std::string& text);

}  // namespace atlasc
