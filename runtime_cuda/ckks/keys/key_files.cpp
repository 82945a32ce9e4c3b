#include "ckks/keys/key_files.hpp"

#include <algorithm>
#include <cstring>

#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/tensor_file.hpp"
#include "ckks/keys/key_maker.hpp"

namespace atlasc::ckks {
namespace {

constexpr const char* secret_kind = "secret key";
constexpr const char* evaluation_kind = "evaluation keys";
constexpr const char* secret_array = "secret";
constexpr const char* key_format = "2";  ///< 1: of rotations, keys from the turned secret
constexpr std::size_t identity_size = 32;
constexpr char digits[] = "0123456789abcdef";

/// Eight digits a word.
std::string text_of(const Seed& seed) {
    std::string text;
    for (const std::uint32_t word : seed.words) {
        for (int shift = 28; shift >= 0; shift -= 4) {
            text += digits[(word >> shift) & 15];
        }
    }
    return text;
}

Seed seed_of(const std::string& text, const std::string& path) {
    Seed seed{};
    const std::size_t count = sizeof seed.words / sizeof seed.words[0];
    if (!is_hexadecimal(text, 8 * count)) {
        throw Error("file " + path + " is damaged", "it has no seed");
    }
    for (std::size_t at = 0; at < count; ++at) {
        seed.words[at] =
            static_cast<std::uint32_t>(std::stoul(text.substr(8 * at, 8), nullptr, 16));
    }
    return seed;
}

/// The primes: the sizes that a program names leave them to the library.
std::string primes_text(const Chain& chain) {
    std::string text;
    for (const std::vector<Prime>* primes : {&chain.q, &chain.special}) {
        for (const Prime& prime : *primes) {
            text += std::to_string(prime.value) + " ";
        }
    }
    return text;
}

Metadata facts(const Interface& interface, const Chain& chain, const char* kind,
               const std::string& key) {
    return {{"kind", kind},
            {"engine", backend::name},
            {"format", key_format},
            {"parameters", interface.parameters.text()},
            {"primes", primes_text(chain)},
            {"key", key}};
}

TensorFile open(const Interface& interface, const Chain& chain, const std::string& path,
                const std::string& kind) {
    TensorFile file(path);
    if (file.fact("kind") != kind || file.fact("engine") != backend::name ||
        file.fact("format") != key_format ||
        !is_hexadecimal(file.fact("key"), identity_size)) {
        throw Error("file " + path + " holds no " + kind + " of the " + backend::name + " engine",
                    "", "give what client keygen wrote");
    }
    if (kind == secret_kind) {
        file.require_secret();
    }
    file.require_seal();
    const std::string wanted = interface.parameters.text();
    if (file.fact("parameters") != wanted || file.fact("primes") != primes_text(chain)) {
        throw Error("file " + path + " was made for other parameters",
                    "it has " + file.fact("parameters") + "; the program needs " + wanted,
                    "make keys with this program's client");
    }
    return file;
}

std::size_t part_bytes(const KeyEntry& entry, std::size_t degree) {
    return entry.extended() * degree * sizeof(Word);
}

/// The parts b of a key's digits; the others are made from the seed.
Bytes stored(const Ring& ring, const KeyEntry& entry, const Words& key) {
    const std::size_t part = part_bytes(entry, ring.degree());
    Bytes bytes(entry.digits * part);
    for (std::size_t digit = 0; digit < entry.digits; ++digit) {
        const Word* b = key.get() + 2 * digit * entry.extended() * ring.degree();
        download(bytes.data() + digit * part, b, part);
    }
    return bytes;
}

/// Whether every word is a residue of its limb's prime.
bool reduced(const Chain& chain, const KeyEntry& entry, const Bytes& bytes) {
    const std::size_t limbs = bytes.size() / (chain.degree * sizeof(Word));
    std::vector<Word> words(chain.degree);
    for (std::size_t limb = 0; limb < limbs; ++limb) {
        const std::size_t at = limb % entry.extended();
        const Prime& q = at < entry.limbs ? chain.q[at] : chain.special[at - entry.limbs];
        const std::size_t size = chain.degree * sizeof(Word);
        std::memcpy(words.data(), bytes.data() + limb * size, size);
        if (*std::max_element(words.begin(), words.end()) >= q.value) {
            return false;
        }
    }
    return true;
}

Words loaded(const Ring& ring, const Seed& seed, const KeyEntry& entry, const TensorFile& file) {
    const std::size_t part = part_bytes(entry, ring.degree());
    if (!file.has(entry.name)) {
        throw Error("file " + file.path() + " lacks a key that the program needs", entry.name,
                    "make keys with this program's client");
    }
    const Bytes bytes = file.bytes(entry.name);
    if (bytes.size() != entry.digits * part) {
        throw Error("file " + file.path() + " has a key that does not reach its level",
                    entry.name, "make keys with this program's client");
    }
    if (!reduced(ring.chain(), entry, bytes)) {
        throw Error("file " + file.path() + " is damaged", "its key " + entry.name);
    }
    Words key(ring.memory(), entry.words(ring.degree()));
    for (std::size_t digit = 0; digit < entry.digits; ++digit) {
        Word* b = key.get() + 2 * digit * entry.extended() * ring.degree();
        upload(b, bytes.data() + digit * part, part);
        sample_uniform_part(ring, seed, entry, digit, b + entry.extended() * ring.degree());
    }
    return key;
}

/// Device memory beside the keys: one key switch at the highest level of a key, the tables of the
/// encoder, and a few ciphertexts of a program.
std::uint64_t working_bytes(const Ring& ring, std::size_t limbs) {
    constexpr std::uint64_t ciphertexts = 16;
    const std::uint64_t extended = limbs + ring.size_p();
    const std::uint64_t polynomials =
        ring.digits(limbs) * extended + 2 * extended + 2 * limbs * (ciphertexts + 1) +
        ring.size_q();
    return polynomials * ring.degree() * sizeof(Word);
}

}  // namespace

void write_keys(const Interface& interface, Ground& ground, const std::string& secret,
                const std::string& evaluation) {
    const Ring& ring = ground.ring;
    const std::string key = random_identity();
    std::vector<std::int8_t> coefficients = uniform_secret(ring.degree());
    const Seed seed = fresh_seed();
    const KeyMaker maker(ring, coefficients, seed);

    Metadata server_facts = facts(interface, ring.chain(), evaluation_kind, key);
    server_facts["seed"] = text_of(seed);
    TensorWriter server(server_facts);
    for (const KeyEntry& entry : entries_of(needs_of(interface, ring.chain()), ring)) {
        server.add(entry.name, entry.digits * part_bytes(entry, ring.degree()),
                   [&ring, &maker, entry] { return stored(ring, entry, maker.make(entry)); });
    }
    server.write_sealed(evaluation);

    TensorWriter client(facts(interface, ring.chain(), secret_kind, key));
    client.add(secret_array, coefficients.size(),
               [&] { return Bytes(coefficients.begin(), coefficients.end()); });
    client.write_sealed(secret, Access::secret);
    wipe(coefficients);
}

Role client_role(const Interface& interface, Ground& ground, const std::string& secret) {
    const TensorFile file = open(interface, ground.ring.chain(), secret, secret_kind);
    Bytes bytes = file.bytes(secret_array);
    std::vector<std::int8_t> coefficients(bytes.begin(), bytes.end());
    wipe(bytes);
    const bool ternary = std::all_of(coefficients.begin(), coefficients.end(),
                                     [](int value) { return value >= -1 && value <= 1; });
    if (coefficients.size() != ground.ring.degree() || !ternary) {
        throw Error("file " + secret + " is damaged", "its secret is none of the ring");
    }
    Role role{file.fact("key"), SecretKey(ground.ring, coefficients), {}, std::nullopt};
    wipe(coefficients);
    return role;
}

Role server_role(const Interface& interface, Ground& ground, const std::string& evaluation) {
    const Ring& ring = ground.ring;
    const TensorFile file = open(interface, ring.chain(), evaluation, evaluation_kind);
    const Seed seed = seed_of(file.fact("seed"), evaluation);
    const std::vector<KeyEntry> entries = entries_of(needs_of(interface, ring.chain()), ring);
    std::uint64_t bytes = 0;
    std::size_t limbs = 0;
    for (const KeyEntry& entry : entries) {
        bytes += entry.words(ring.degree()) * sizeof(Word);
        limbs = std::max(limbs, entry.limbs);
    }
    ground.memory->require(bytes + working_bytes(ring, limbs), "the keys and what they work on");

    Role role{file.fact("key"), std::nullopt, {}, std::nullopt};
    for (const KeyEntry& entry : entries) {
        keep(role.keys, entry, loaded(ring, seed, entry, file));
    }
    const auto& moduli = interface.parameters.moduli;
    if (moduli && !moduli->bootstrap.empty()) {
        role.bootstrap =
            bootstrapping::named(moduli->bootstrap, static_cast<long>(ring.degree()));
    }
    return role;
}

}  // namespace atlasc::ckks
