#include "mutate.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "atlasc/base/json.hpp"
#include "atlasc/base/sha256.hpp"

namespace fuzz {
namespace {

constexpr std::size_t prefix = sizeof(std::uint64_t);

const char* const numbers[] = {"0",  "1",  "2",          "3",          "4",
                               "8",  "16", "2147483647", "2147483648", "4294967296",
                               "-1", "07", "1e400",      "NaN",        "999999999999999999",
                               "18446744073709551615",   "99999999999999999999999999999999"};
const char* const words[] = {"{", "}", "[", "]", "\"", ":", ",", "\\", "\\u0000", "\\ud800",
                             "[[[[[[[[[[[[", "{\"a\":{\"a\":{\"a\":", "null", "true", "F32",
                             "F64", "U8", "I64", "BF16", "\n", "\x1b[31m", "\"x/0\"", "~sha256"};

std::size_t below(std::size_t end, Random& random) { return end == 0 ? 0 : random() % end; }

template <typename Choices>
std::string chosen(const Choices& choices, Random& random) {
    return choices[below(std::size(choices), random)];
}

/// Replaces one run of decimal digits, of the one from a random place on.
void replace_number(std::string& content, Random& random) {
    const char* const digits = "0123456789";
    const std::size_t start = content.find_first_of(digits, below(content.size(), random));
    if (start != std::string::npos) {
        const std::size_t end = std::min(content.find_first_not_of(digits, start), content.size());
        content.replace(start, end - start, chosen(numbers, random));
    }
}

void change(std::string& content, Random& random) {
    const std::size_t at = below(content.size(), random);
    const std::size_t length = below(std::min<std::size_t>(content.size() - at, 64), random);
    const std::size_t to = below(content.size(), random);
    switch (random() % 10) {
        case 0:
        case 1:
            if (!content.empty()) {
                content[at] = static_cast<char>(content[at] ^ (1 << random() % 8));
            }
            break;
        case 2:
            if (!content.empty()) {
                content[at] = static_cast<char>(random());
            }
            break;
        case 3:
            content.resize(at);
            break;
        case 4:
            content.insert(to, content.substr(at, length));
            break;
        case 5:
            content.erase(at, length);
            break;
        case 6:
            content.replace(to, length, content.substr(at, length));
            break;
        case 7:
        case 8:
            replace_number(content, random);
            break;
        default:
            content.insert(at, chosen(words, random));
    }
}

std::uint64_t header_size(const std::string& content) {
    std::uint64_t size = 0;
    std::memcpy(&size, content.data(), prefix);
    return size;
}

std::string with_prefix(const std::string& header) {
    const std::uint64_t size = header.size();
    std::string text(reinterpret_cast<const char*>(&size), prefix);
    return text + header;
}

}  // namespace

std::string mutated(std::string content, Random& random) {
    if (content.size() >= prefix && random() % 8 == 0) {  // lengths of the header
        const std::uint64_t sizes[] = {0, 1, content.size(), content.size() - prefix, 1 << 20,
                                       ~std::uint64_t{0}, header_size(content) + 1, random()};
        const std::uint64_t size = sizes[below(std::size(sizes), random)];
        std::memcpy(content.data(), &size, prefix);
    }
    for (std::size_t left = 1 + random() % 4; left > 0; --left) {
        change(content, random);
    }
    return content;
}

std::string resealed(const std::string& content, Random& random) {
    const std::string header = content.substr(prefix, header_size(content));
    std::string data = content.substr(prefix + header.size());
    std::string changed = header;
    // Most changes of numbers and names in a header make it another valid one.
    for (std::size_t left = random() % 3; left > 0; --left) {
        change(changed, random);
    }
    if (random() % 2 == 0 || changed == header) {
        const std::size_t at = below(data.size(), random);
        const std::uint64_t value[] = {0, ~std::uint64_t{0}, 0x7ff0000000000000, 0x7ff8000000000000,
                                       0x7fefffffffffffff, random()};
        std::memcpy(data.data() + at, &value[below(std::size(value), random)],
                    std::min(prefix, data.size() - at));
    }
    const atlasc::Json parsed = atlasc::parse_json(header);
    std::size_t end = 0;
    const auto seal = [&](const std::string& part) {
        const atlasc::Digest digest = atlasc::sha256(part.data(), part.size());
        std::copy(digest.begin(), digest.end(),
                  data.begin() + static_cast<std::ptrdiff_t>(end));
        end += digest.size();
    };
    std::vector<std::string> parts = {changed};
    for (const auto& [name, facts] : parsed.object()) {
        if (name != "__metadata__" && name != "~sha256") {
            const auto& place = facts.object().at("data_offsets").array();
            parts.push_back(data.substr(place[0].integer(),
                                        place[1].integer() - place[0].integer()));
        }
    }
    end = parsed.object().at("~sha256").object().at("data_offsets").array()[0].integer();
    for (const std::string& part : parts) {
        seal(part);
    }
    return with_prefix(changed) + data;
}

std::string with_checksum(std::string content) {
    constexpr std::size_t place = 40;  // an identity of 32, and a level
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (std::size_t at = place + prefix; at + prefix <= content.size(); at += prefix) {
        std::uint64_t word = 0;
        std::memcpy(&word, content.data() + at, prefix);
        sum = (sum ^ word) * 0x100000001b3ULL;
    }
    if (content.size() >= place + prefix) {
        std::memcpy(content.data() + place, &sum, prefix);
    }
    return content;
}

}  // namespace fuzz
