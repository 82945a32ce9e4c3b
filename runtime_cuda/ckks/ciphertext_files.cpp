// Ciphertexts as bytes: identity of the keys, level, checksum, residues.
#include <cstring>

#include "ckks/ckks_engine.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {
namespace {

/// FNV-1a over words (Fowler, Noll and Vo): a damaged file is told from a whole one, nothing more.
std::uint64_t checksum(const std::uint8_t* bytes, std::size_t size) {
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (std::size_t at = 0; at + sizeof sum <= size; at += sizeof sum) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + at, sizeof word);
        sum = (sum ^ word) * 0x100000001b3ULL;
    }
    return sum;
}

struct Header {
    std::int64_t level;
    std::uint64_t checksum;
};

}  // namespace

std::size_t CkksEngine::saved_size(int level) const {
    const std::size_t limbs = ring_.chain().limbs_at(level);
    return role_.identity.size() + sizeof(Header) + 2 * limbs * ring_.degree() * sizeof(Word);
}

Bytes CkksEngine::save(const Ciphertext& handle) const {
    const Value x = canonical(handle);
    const std::size_t part = x.limbs * ring_.degree() * sizeof(Word);
    const std::size_t start = role_.identity.size() + sizeof(Header);
    Bytes bytes(start + 2 * part);
    download(bytes.data() + start, x.polys->part(0), part);
    download(bytes.data() + start + part, x.polys->part(1), part);
    const Header header{x.level, checksum(bytes.data() + start, 2 * part)};
    std::memcpy(bytes.data(), role_.identity.data(), role_.identity.size());
    std::memcpy(bytes.data() + role_.identity.size(), &header, sizeof header);
    return bytes;
}

Ciphertext CkksEngine::load(const Bytes& bytes) const {
    const Error damaged("a ciphertext is damaged, or was made with other parameters");
    const std::size_t start = role_.identity.size() + sizeof(Header);
    if (bytes.size() < start) {
        throw damaged;
    }
    if (std::memcmp(bytes.data(), role_.identity.data(), role_.identity.size()) != 0) {
        throw Error("a ciphertext belongs to other keys", "",
                    "use the keys that the query was encrypted with");
    }
    Header header{};
    std::memcpy(&header, bytes.data() + role_.identity.size(), sizeof header);
    if (header.level < 0 || header.level > ring_.chain().top()) {
        throw damaged;
    }
    const auto level = static_cast<int>(header.level);
    const std::size_t limbs = ring_.chain().limbs_at(level);
    const std::size_t size = 2 * limbs * ring_.degree() * sizeof(Word);
    if (bytes.size() != start + size || checksum(bytes.data() + start, size) != header.checksum) {
        throw damaged;
    }
    if (!is_reduced(ring_.chain(), limbs, bytes.data() + start, 2)) {
        throw Error("a ciphertext is damaged", "it has a residue that is not below its prime",
                    "ask for it again; whoever made it changed it, or has other parameters");
    }
    auto polys = std::make_shared<Polys>(ring_, 2, limbs);
    upload(polys->words.get(), bytes.data() + start, size);
    return held(std::move(polys), level, limbs, scale_of(level));
}

}  // namespace atlasc::ckks
