// Ciphertexts as bytes: identity of the keys, level, form, checksum, and the residues of each part,
// packed (packing.hpp). In place of the uniform part of a fresh ciphertext stands its seed.
#include "ckks/ciphertext_files.hpp"

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

/// What follows the header.
enum class Form : std::uint32_t {
    unpacked,  ///< both parts, a word for each residue: made by version 0.1.0, and only read
    packed,    ///< both parts
    seeded,    ///< part 0, and the seed of part 1
};

struct Header {
    std::int32_t level;
    Form form;
    std::uint64_t checksum;
};

std::size_t size_of(const Packing& packing, Form form) {
    switch (form) {
        case Form::unpacked:
            return 2 * (packing.limbs << packing.log_degree) * sizeof(Word);
        case Form::packed:
            return 2 * packing.bytes();
        default:
            return packing.bytes() + sizeof(Seed);
    }
}

}  // namespace

std::size_t ciphertext_bytes(const Chain& chain, int level, bool fresh) {
    const Packing packing(chain, chain.limbs_at(level), 0);
    return identity_size + sizeof(Header) + size_of(packing, fresh ? Form::seeded : Form::packed);
}

std::size_t CkksEngine::saved_size(int level, bool fresh) const {
    return ciphertext_bytes(ring_.chain(), level, fresh);
}

std::size_t CkksEngine::largest_size(int level) const {
    const Packing packing(ring_.chain(), limbs_of(level), 0);
    return identity_size + sizeof(Header) + size_of(packing, Form::unpacked);
}

Bytes CkksEngine::save(const Ciphertext& handle) const {
    const Value x = canonical(handle);
    const Packing packing(ring_.chain(), x.limbs, 0);
    const Form form = x.seed ? Form::seeded : Form::packed;
    const std::size_t size = size_of(packing, form);
    Bytes bytes(identity_size + sizeof(Header) + size);
    std::uint8_t* const content = bytes.data() + identity_size + sizeof(Header);
    const Words words(ring_.memory(), packing.words());
    for (std::size_t part = 0; part < (x.seed ? 1 : 2); ++part) {
        pack(packing, x.polys->part(part), words.get());
        download(content + part * packing.bytes(), words.get(), packing.bytes());
    }
    if (x.seed) {
        std::memcpy(content + packing.bytes(), x.seed->words, sizeof(Seed));
    }
    const Header header{x.level, form, checksum(content, size)};
    std::memcpy(bytes.data(), role_.identity.data(), identity_size);
    std::memcpy(bytes.data() + identity_size, &header, sizeof header);
    return bytes;
}

Ciphertext CkksEngine::load(const Bytes& bytes) const {
    const Error damaged("a ciphertext is damaged, or was made with other parameters");
    if (bytes.size() < identity_size + sizeof(Header)) {
        throw damaged;
    }
    if (std::memcmp(bytes.data(), role_.identity.data(), identity_size) != 0) {
        throw Error("a ciphertext belongs to other keys", "",
                    "use the keys that the query was encrypted with");
    }
    Header header{};
    std::memcpy(&header, bytes.data() + identity_size, sizeof header);
    if (header.level < 0 || header.level > ring_.chain().top() || header.form > Form::seeded) {
        throw damaged;
    }
    const std::size_t limbs = limbs_of(header.level);
    const Packing packing(ring_.chain(), limbs, 0);
    const std::uint8_t* content = bytes.data() + identity_size + sizeof header;
    const std::size_t size = size_of(packing, header.form);
    if (bytes.size() != identity_size + sizeof header + size ||
        checksum(content, size) != header.checksum) {
        throw damaged;
    }
    const Error not_reduced(
        "a ciphertext is damaged", "it has a residue that is not below its prime",
        "ask for it again; whoever made it changed it, or has other parameters");
    auto polys = std::make_shared<Polys>(ring_, 2, limbs);
    std::optional<Seed> seed;
    if (header.form == Form::unpacked) {
        if (!is_reduced(ring_.chain(), limbs, content, 2)) {
            throw not_reduced;
        }
        upload(polys->words.get(), content, size);
        return held(std::move(polys), header.level, limbs, scale_of(header.level));
    }
    const bool seeded = header.form == Form::seeded;
    std::vector<Word> words(packing.words());
    for (std::size_t part = 0; part < (seeded ? 1 : 2); ++part, content += packing.bytes()) {
        std::memcpy(words.data(), content, packing.bytes());
        if (!is_reduced(ring_.chain(), packing, words.data())) {
            throw not_reduced;
        }
        const Words packed = uploaded(ring_.memory(), words);
        unpack(packing, packed.get(), polys->part(part));
    }
    if (seeded) {
        std::memcpy(seed.emplace().words, content, sizeof(Seed));
        sample_ciphertext_part(ring_, *seed, *polys);
    }
    return held(std::move(polys), header.level, limbs, scale_of(header.level), seed);
}

}  // namespace atlasc::ckks
