#include "ckks/keys/key_files.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/base/tensor_file.hpp"
#include "ckks/keys/derived_keys.hpp"
#include "ckks/keys/key_maker.hpp"

namespace atlasc::ckks {
namespace {

constexpr const char* secret_kind = "secret key";
constexpr const char* evaluation_kind = "evaluation keys";
constexpr const char* public_kind = "public key";
constexpr const char* secret_array = "secret";
constexpr const char* public_array = "encryption of zero";
/// 1: rotations had keys from the turned secret; 2: not packed; 3: key and digit shared a word of the
/// nonce.
constexpr const char* key_format = "5";
/// Of public keys; to 5: not packed, and without a seed.
constexpr const char* public_format = "6";
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

Seed seed_of(const TensorFile& file) {
    const std::string text = file.fact("seed");
    Seed seed{};
    const std::size_t count = sizeof seed.words / sizeof seed.words[0];
    if (!is_hexadecimal(text, 8 * count)) {
        throw Error(file.name() + " is damaged", "it has no seed");
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

const char* format_of(const std::string& kind) {
    return kind == public_kind ? public_format : key_format;
}

/// The levels of roots, of a file that has some.
constexpr const char* roots_fact = "roots";

std::string text_of(const Derivation& derivation) {
    return std::to_string(derivation.level) + " " + std::to_string(derivation.last);
}

Metadata facts(const Interface& interface, const Chain& chain, const char* kind,
               const std::string& key) {
    return {{"kind", kind},
            {"engine", name_in_files(ckks_backend, interface)},
            {"format", format_of(kind)},
            {"parameters", interface.parameters.text()},
            {"primes", primes_text(chain)},
            {"key", key}};
}

Metadata evaluation_facts(const Interface& interface, const Chain& chain, const KeyNeeds& needs,
                          const std::string& key, const Seed& seed) {
    Metadata found = facts(interface, chain, evaluation_kind, key);
    found["seed"] = text_of(seed);
    if (!needs.derivation.roots.empty()) {
        found[roots_fact] = text_of(needs.derivation);
    }
    return found;
}

TensorFile open(const Interface& interface, const Chain& chain, PlainFile plain,
                const std::string& kind) {
    TensorFile file(std::move(plain));
    const std::string engine = name_in_files(ckks_backend, interface);
    if (file.fact("kind") != kind || file.fact("engine") != engine ||
        !is_hexadecimal(file.fact("key"), identity_size)) {
        throw Error(file.name() + " holds no " + kind + " of the " + engine + " engine",
                    "", "give what client keygen wrote");
    }
    file.require_format({format_of(kind)});
    if (kind == secret_kind) {
        file.require_secret();
    }
    const std::string wanted = interface.parameters.text();
    if (file.fact("parameters") != wanted || file.fact("primes") != primes_text(chain)) {
        throw Error(file.name() + " was made for other parameters",
                    "it has " + file.fact("parameters") + "; the program needs " + wanted,
                    "make keys with this program's client");
    }
    file.require_seal();  // which reads gigabytes
    return file;
}

/// The parts b of a key's digits; the others are made from the seed.
Bytes stored(const KeyEntry& entry, const SwitchKey& key) {
    const std::size_t part = key.packing.bytes();
    Bytes bytes(entry.digits * part);
    for (std::size_t digit = 0; digit < entry.digits; ++digit) {
        const Word* b = key.words.get() + 2 * digit * key.packing.words();
        download(bytes.data() + digit * part, b, part);
    }
    return bytes;
}

SwitchKey loaded(const Ring& ring, const Seed& seed, const KeyEntry& entry,
                 const TensorFile& file) {
    const Packing packing = entry.packing(ring.chain());
    const std::size_t part = packing.bytes();
    if (!file.has(entry.name)) {
        throw Error(file.name() + " lacks a key that the program needs", entry.name,
                    "make keys with this program's client");
    }
    if (file.shape(entry.name) != std::vector<std::size_t>{entry.digits * part}) {
        throw Error(file.name() + " has a key that does not reach its level",
                    entry.name, "make keys with this program's client");
    }
    SwitchKey key{packing, Words(ring.memory(), entry.words(ring.chain()))};
    const Words uniform = ring.polynomial(packing.extended());
    std::vector<Word> words(packing.words());
    bool reduced = true;
    Word* b = key.words.get();
    std::size_t digit = 0;
    file.parts(entry.name, part, [&](const Bytes& bytes) {
        std::memcpy(words.data(), bytes.data(), part);
        reduced = reduced && is_reduced(ring.chain(), packing, words.data());
        upload(b, words.data(), part);
        sample_uniform_part(ring, seed, entry, digit, uniform.get());
        pack(packing, uniform.get(), b + packing.words());
        b += 2 * packing.words();
        ++digit;
    });
    if (!reduced) {
        throw Error(file.name() + " is damaged", "its key " + entry.name);
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

/// Throws Error unless there is memory for the keys, and for an execution or for making keys.
void require_room(const Ground& ground, const PlannedKeys& entries, std::uint64_t execution) {
    std::uint64_t bytes = 0;
    std::size_t limbs = 0;
    for (const std::vector<KeyEntry>* some : {&entries.sent, &entries.derived}) {
        for (const KeyEntry& entry : *some) {
            bytes += entry.words(ground.ring.chain()) * sizeof(Word);
            limbs = std::max(limbs, entry.limbs);
        }
    }
    for (const KeyEntry& entry : entries.roots) {
        bytes += entry.words(*entries.root_chain) * sizeof(Word);
    }
    ground.memory->require(bytes + std::max(execution, working_bytes(ground.ring, limbs)),
                           "the keys and what they work on");
}

/// Derives keys by roots: `source` gives, for their ring, what makes or reads one.
template <typename Source>
void add_derived(const PlannedKeys& entries, const KeyNeeds& needs, const Ring& ring,
                 EvaluationKeys& keys, const Source& source) {
    if (!entries.root_chain) {
        return;
    }
    const Ring roots(ring.memory(), *entries.root_chain);
    const auto root_of = source(roots);
    std::map<std::size_t, SwitchKey> root_keys;
    for (const KeyEntry& entry : entries.roots) {
        root_keys.emplace(entry.amount, root_of(entry));
    }
    derive(ring, needs, roots, root_keys, keys);
}

/// Refuses a file whose roots have other levels (Error). A file that has a key needs no derivation of it.
void require_derivable(const TensorFile& file, const Chain& chain, KeyNeeds& needs) {
    std::map<std::size_t, std::size_t>& roots = needs.derivation.roots;
    for (auto one = roots.begin(); one != roots.end();) {
        const bool there = file.has(rotation_of(chain, one->first, 0).name);
        one = there ? roots.erase(one) : std::next(one);
    }
    if (!roots.empty() && file.fact(roots_fact) != text_of(needs.derivation)) {
        throw Error(file.name() + " has no roots that the program's keys are derived by",
                    "it was made for another program, or by another version of atlasc",
                    "make keys with this program's client");
    }
}

}  // namespace

std::unique_ptr<Ground> ground_of(const Interface& interface, std::uint64_t device_memory) {
    const Chain chain = chain_of(interface.parameters);
    require_security(chain);
    return std::make_unique<Ground>(chain, device_memory);
}

void write_keys(const Interface& interface, Ground& ground, const KeyPaths& paths,
                const KeyProgress& progress) {
    const Ring& ring = ground.ring;
    const std::string key = random_identity();
    const Coefficients coefficients = uniform_secret(ring.degree());
    const Seed seed = fresh_seed();
    const KeyMaker maker(ring, coefficients, seed);

    const KeyNeeds needs = needs_of(interface);
    TensorWriter server(evaluation_facts(interface, ring.chain(), needs, key, seed));
    const PlannedKeys entries(needs, ring.chain());
    std::size_t made = 0;
    const auto add = [&](const KeyEntry& entry, const Ring& its_ring, const KeyMaker& its_maker) {
        const std::size_t size = entry.digits * entry.packing(its_ring.chain()).bytes();
        server.add(entry.name, size, [&, entry] {
            if (progress) {
                progress(entry.name, made++, entries.made());
            }
            return stored(entry, its_maker.make(entry));
        });
    };
    for (const KeyEntry& entry : entries.sent) {
        add(entry, ring, maker);
    }
    std::optional<Ring> root_ring;
    std::optional<KeyMaker> root_maker;
    if (entries.root_chain) {
        root_ring.emplace(ring.memory(), *entries.root_chain);
        root_maker.emplace(*root_ring, coefficients, seed);
        for (const KeyEntry& entry : entries.roots) {
            add(entry, *root_ring, *root_maker);
        }
    }
    server.write_sealed(paths.evaluation, Access::secret);

    TensorWriter client(facts(interface, ring.chain(), secret_kind, key));
    client.add(secret_array, coefficients.size(),
               [&] { return Bytes(coefficients.begin(), coefficients.end()); });
    client.write_sealed(paths.secret, Access::secret);

    if (!paths.public_key.empty()) {
        const std::size_t limbs = ring.size_q();
        const Words zero = uploaded(ring.memory(), std::vector<Word>(limbs * ring.degree(), 0));
        const Encryption made = SecretKey(ring, coefficients).encrypt(zero, limbs);
        const Packing packing(ring.chain(), limbs, 0);
        const Words packed(ring.memory(), packing.words());
        pack(packing, made.polys.part(0), packed.get());
        Bytes bytes(packing.bytes());
        download(bytes.data(), packed.get(), bytes.size());
        Metadata public_facts = facts(interface, ring.chain(), public_kind, key);
        public_facts["seed"] = text_of(made.seed);
        TensorWriter everybody(public_facts);
        everybody.add(public_array, std::move(bytes));
        everybody.write_sealed(paths.public_key);
    }
}

std::uint64_t evaluation_bytes(const Interface& interface, const Chain& chain) {
    const KeyNeeds needs = needs_of(interface);
    TensorWriter writer(evaluation_facts(interface, chain, needs, std::string(identity_size, '0'),
                                         Seed{}));
    const PlannedKeys entries(needs, chain);
    const auto count = [&](const KeyEntry& entry, const Chain& its_chain) {
        const std::size_t size = entry.digits * entry.packing(its_chain).bytes();
        writer.count(entry.name, "U8", {size}, size);
    };
    for (const KeyEntry& entry : entries.sent) {
        count(entry, chain);
    }
    for (const KeyEntry& entry : entries.roots) {
        count(entry, *entries.root_chain);
    }
    return writer.sealed_size();
}

Role fresh_role(const Interface& interface, Ground& ground, const KeyProgress& progress) {
    const Ring& ring = ground.ring;
    const KeyNeeds needs = needs_of(interface);
    const PlannedKeys entries(needs, ring.chain());
    require_room(ground, entries, interface.memory);
    const Coefficients coefficients = uniform_secret(ring.degree());
    const Seed seed = fresh_seed();
    const auto keys = std::make_shared<EvaluationKeys>(
        KeyMaker(ring, coefficients, seed).make(needs, progress));
    add_derived(entries, needs, ring, *keys, [&](const Ring& roots) {
        const auto maker = std::make_shared<KeyMaker>(roots, coefficients, seed);
        return [maker](const KeyEntry& entry) { return maker->make(entry); };
    });
    return {random_identity(), SecretKey(ring, coefficients), keys};
}

Role client_role(const Interface& interface, Ground& ground, PlainFile secret) {
    const TensorFile file = open(interface, ground.ring.chain(), std::move(secret), secret_kind);
    Bytes bytes = file.bytes(secret_array);
    const Coefficients coefficients(bytes.begin(), bytes.end());
    wipe(bytes);
    const bool ternary = std::all_of(coefficients.begin(), coefficients.end(),
                                     [](int value) { return value >= -1 && value <= 1; });
    if (coefficients.size() != ground.ring.degree() || !ternary) {
        throw Error(file.name() + " is damaged", "its secret is none of the ring");
    }
    return {file.fact("key"), SecretKey(ground.ring, coefficients),
            std::make_shared<EvaluationKeys>()};
}

Role public_role(const Interface& interface, Ground& ground, PlainFile public_key) {
    const Ring& ring = ground.ring;
    const TensorFile file = open(interface, ring.chain(), std::move(public_key), public_kind);
    const Packing packing(ring.chain(), ring.size_q(), 0);
    const Bytes bytes = file.bytes(public_array);
    std::vector<Word> words(packing.words());
    if (bytes.size() == packing.bytes()) {
        std::memcpy(words.data(), bytes.data(), bytes.size());
    }
    if (bytes.size() != packing.bytes() || !is_reduced(ring.chain(), packing, words.data())) {
        throw Error(file.name() + " is damaged", "its key is none of the ring");
    }
    Polys zero(ring, 2, ring.size_q());
    unpack(packing, uploaded(ring.memory(), words).get(), zero.part(0));
    sample_ciphertext_part(ring, seed_of(file), zero);
    Role role{file.fact("key"), std::nullopt, std::make_shared<EvaluationKeys>()};
    role.public_key.emplace(ring, std::move(zero));
    return role;
}

Role server_role(const Interface& interface, Ground& ground, PlainFile evaluation) {
    const Ring& ring = ground.ring;
    const TensorFile file = open(interface, ring.chain(), std::move(evaluation), evaluation_kind);
    const Seed seed = seed_of(file);
    KeyNeeds needs = needs_of(interface);
    require_derivable(file, ring.chain(), needs);
    PlannedKeys entries(needs, ring.chain());
    require_room(ground, entries, interface.memory);
    number_by(file.names(), entries.sent);
    number_by(file.names(), entries.roots);
    auto keys = std::make_shared<EvaluationKeys>();
    for (const KeyEntry& entry : entries.sent) {
        keep(*keys, entry, loaded(ring, seed, entry, file));
    }
    add_derived(entries, needs, ring, *keys, [&](const Ring& roots) {
        return [&](const KeyEntry& entry) { return loaded(roots, seed, entry, file); };
    });
    return {file.fact("key"), std::nullopt, std::move(keys)};
}

}  // namespace atlasc::ckks
