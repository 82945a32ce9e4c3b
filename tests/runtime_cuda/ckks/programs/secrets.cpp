// Random numbers and secrets of the engine, for tests that judge them. What is printed is binary
// but for `digests`, `wiped` and messages.
//   errors COUNT            error polynomials of one seed, each modulo every prime, centred
//   uniform COUNT MODULI    polynomials of one seed, each modulo every number
//   ternary COUNT           secrets of 2^16 coefficients
//   sparse COUNT            secrets of 2^11 coefficients: places from 1 on, with their signs
//   digests                 SHA-256 of secrets, keys, a ciphertext
//   arithmetic              keys and ciphertexts at N = 2^11, as named arrays
//   pool                    nothing, where blocks of the memory pool hold what they should
//   wiped FOLDER            the secrets that are left in memory once all that held them is gone
// ATLASC_ENTROPY stands for the entropy of the system: a number makes all of it, `none` is a system
// that has none to give, and without it there is the system's own.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "atlasc/base/sha256.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/keys/key_maker.hpp"
#include "kernel.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

std::uint64_t entropy_state = 0;
std::vector<std::uint8_t> entropy_given;  ///< each byte masked, as in Needle
unsigned entropy_calls = 0;
constexpr std::uint8_t mask = 0x5a;

/// SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t next_entropy() {
    std::uint64_t x = entropy_state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// From the start again.
void begin_entropy() {
    const char* wanted = std::getenv("ATLASC_ENTROPY");
    entropy_state = wanted == nullptr ? 0 : std::strtoull(wanted, nullptr, 10);
}

}  // namespace

/// In place of the C library's. It gives a few bytes at a time, and is interrupted now and then.
extern "C" ssize_t getrandom(void* to, std::size_t size, unsigned flags) {
    const char* wanted = std::getenv("ATLASC_ENTROPY");
    if (wanted == nullptr) {
        return ::syscall(SYS_getrandom, to, size, flags);
    }
    const bool none = std::strcmp(wanted, "none") == 0;
    if (none || ++entropy_calls % 3 == 0) {
        errno = none ? EIO : EINTR;
        return -1;
    }
    const std::uint64_t bits = next_entropy();
    const std::size_t given = std::min<std::size_t>(size, 5);
    std::memcpy(to, &bits, given);
    for (std::size_t at = 0; at < given; ++at) {
        entropy_given.push_back(static_cast<std::uint8_t>((bits >> 8 * at) ^ mask));
    }
    return static_cast<ssize_t>(given);
}

namespace {

using namespace atlasc;
using namespace atlasc::ckks;

constexpr int log_degree = 11;  // the least there is
constexpr Seed known_seed = {{1, 2, 3, 4, 5, 6, 7, 8}};

Interface interface_of_tests() { return conformance::leveled(log_degree, 3, 2); }

KeyNeeds needs_of_tests() {
    KeyNeeds needs = needs_of(interface_of_tests());
    needs.raising = true;
    return needs;
}

template <typename T>
void print(const T* numbers, std::size_t count) {
    std::cout.write(reinterpret_cast<const char*>(numbers),
                    static_cast<std::streamsize>(count * sizeof(T)));
}

std::vector<Prime> all_primes(const Ring& ring) {
    std::vector<Prime> primes = ring.chain().q;
    primes.insert(primes.end(), ring.chain().special.begin(), ring.chain().special.end());
    return primes;
}

void errors(std::uint32_t count) {
    const Ground ground(chain_of(interface_of_tests().parameters), 0);
    const Ring& ring = ground.ring;
    const std::vector<Prime> primes = all_primes(ring);
    const Words limbs = ring.polynomial(ring.size_qp());
    for (std::uint32_t number = 0; number < count; ++number) {
        // Those of Q and the special ones on their own, as keys have them.
        const Stream stream{known_seed, number};
        Word* special = limbs.get() + ring.size_q() * ring.degree();
        sample_error(ring, stream, limbs.get(), 0, ring.size_q());
        sample_error(ring, stream, special, ring.size_q(), ring.size_p());
        std::vector<std::int8_t> centred;
        const std::vector<Word> words = downloaded(limbs.get(), limbs.size());
        for (std::size_t at = 0; at < words.size(); ++at) {
            const Word q = primes[at / ring.degree()].value;
            const bool negative = words[at] > q / 2;
            const Word size = negative ? q - words[at] : words[at];
            const int shown = static_cast<int>(std::min<Word>(size, 127));
            centred.push_back(static_cast<std::int8_t>(negative ? -shown : shown));
        }
        print(centred.data(), centred.size());
    }
}

void uniform(std::uint32_t count, const std::vector<Word>& moduli) {
    std::vector<Prime> primes;
    for (const Word q : moduli) {
        const Wide ratio = ~static_cast<Wide>(0) / q;
        primes.push_back({q, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)});
    }
    std::vector<Word> words(primes.size() << log_degree);
    for (std::uint32_t number = 0; number < count; ++number) {
        const Stream stream{known_seed, number};
        launch(words.size() / 4, Uniform{stream, log_degree, primes.data(), 0, words.data()}, "");
        print(words.data(), words.size());
    }
}

void ternary(int count) {
    for (int number = 0; number < count; ++number) {
        const Coefficients secret = uniform_secret(std::size_t{1} << 16);
        print(secret.data(), secret.size());
    }
}

void sparse(int count) {
    for (int number = 0; number < count; ++number) {
        const Coefficients secret = sparse_secret(std::size_t{1} << log_degree, 32);
        std::vector<std::int16_t> places;
        for (std::size_t at = 0; at < secret.size(); ++at) {
            if (secret[at] != 0) {
                places.push_back(static_cast<std::int16_t>(secret[at] * static_cast<int>(at + 1)));
            }
        }
        if (places.size() != 32) {
            throw Error("a sparse secret of " + std::to_string(places.size()) + " coefficients");
        }
        print(places.data(), places.size());
    }
}

template <typename Values>
void digest(const std::string& name, const Values& values) {
    std::cout << name << ' '
              << text_of(sha256(values.data(), values.size() * sizeof *values.data())) << '\n';
}

/// A plaintext without slots, since the Fourier transforms of two devices round otherwise.
Words counting(const Ring& ring, std::size_t limbs) {
    std::vector<Word> coefficients(limbs * ring.degree());
    for (std::size_t at = 0; at < coefficients.size(); ++at) {
        coefficients[at] = at % ring.degree();
    }
    Words values = uploaded(ring.memory(), coefficients);
    ring.forward(values.get(), limbs);
    return values;
}

void digests() {
    const Ground ground(chain_of(interface_of_tests().parameters), 0);
    const Ring& ring = ground.ring;
    const Coefficients secret = uniform_secret(ring.degree());
    digest("secret", secret);
    digest("sparse secret", sparse_secret(ring.degree(), 32));
    const KeyMaker maker(ring, secret, fresh_seed());
    for (const KeyEntry& entry : entries_of(needs_of_tests(), ring.chain())) {
        const SwitchKey key = maker.make(entry);
        digest(entry.name, downloaded(key.words.get(), key.words.size()));
    }
    const SecretKey key(ring, secret);
    for (const char* name : {"ciphertext", "ciphertext of the same"}) {
        const Polys x = key.encrypt(counting(ring, 2), 2).polys;
        digest(name, downloaded(x.words.get(), x.words.size()));
    }
}

template <typename Values>
void named(const std::string& name, const Values& values) {
    std::cout << name << '\n' << values.size() * sizeof *values.data() << '\n';
    print(values.data(), values.size());
}

Vector slots_of(std::size_t count, double step) {
    Vector slots(count);
    for (std::size_t at = 0; at < count; ++at) {
        slots[at] = std::cos(step * static_cast<double>(at));
    }
    return slots;
}

/// The secret, keys, two inputs, what is computed of them, and what the engine decrypts.
void arithmetic() {
    auto ground = std::make_unique<Ground>(chain_of(interface_of_tests().parameters), 0);
    const Ring& ring = ground->ring;
    std::vector<Word> primes;
    for (const Prime& prime : all_primes(ring)) {
        primes.push_back(prime.value);
    }
    named("primes", primes);
    named("limbs", ring.chain().limbs);
    named("digits", ring.chain().digits);
    named("scales", ring.chain().scales);
    // The transform of X lists the roots of unity at which values are taken.
    std::vector<Word> x(ring.size_qp() * ring.degree(), 0);
    for (std::size_t limb = 0; limb < ring.size_qp(); ++limb) {
        x[limb * ring.degree() + 1] = 1;
    }
    const Words points = uploaded(ring.memory(), x);
    ring.forward(points.get(), ring.size_qp());
    named("points", downloaded(points.get(), points.size()));

    const Coefficients secret = uniform_secret(ring.degree());
    named("secret", secret);
    const KeyMaker maker(ring, secret, fresh_seed());
    const KeyNeeds needs = needs_of_tests();
    for (const KeyEntry& entry : entries_of(needs, ring.chain())) {
        const SwitchKey key = maker.make(entry);
        named("key/" + entry.name, downloaded(key.words.get(), key.words.size()));
    }
    Role role{std::string(32, '0'), SecretKey(ring, secret),
              std::make_shared<EvaluationKeys>(maker.make(needs))};
    CkksEngine engine(std::move(ground), std::move(role));
    const int top = engine.level(engine.encrypt(Vector(engine.slots(), 0.0), 3));
    const auto result = [&](const std::string& name, const Ciphertext& ciphertext) {
        named("ciphertext/" + name, engine.save(ciphertext));
        named("decrypted/" + name, engine.decrypt(ciphertext));
    };
    const Vector first = slots_of(engine.slots(), 0.7);
    const Vector second = slots_of(engine.slots(), 1.9);
    named("slots/first", first);
    named("slots/second", second);
    const Ciphertext a = engine.encrypt(first, top);
    const Ciphertext b = engine.encrypt(second, top);
    result("first", a);
    result("again", engine.encrypt(first, top));
    result("second", b);
    result("product", engine.mul(a, b));
    result("rotated", engine.rotate(a, 5));
    result("conjugated", engine.conjugate(a));
}

/// What may not be left in memory: bytes that are masked here, because this memory is searched too.
struct Needle {
    std::string name;
    std::vector<std::uint8_t> bytes;
};

constexpr std::size_t needle_size = 256;

/// From the second half of a block, since what is freed is written on at its begin, and from its
/// first byte that is not zero.
template <typename Values>
Needle needle(const std::string& name, const Values& values) {
    const std::size_t size = values.size() * sizeof *values.data();
    const auto* start = reinterpret_cast<const std::uint8_t*>(values.data());
    const auto* first = std::find_if(start + size / 2, start + size, [](int x) { return x != 0; });
    Needle made{name, {first, std::min(first + needle_size, start + size)}};
    for (std::uint8_t& byte : made.bytes) {
        byte ^= mask;
    }
    return made;
}

struct Work {
    std::string secret_file;
    std::string evaluation_file;
    std::string public_file;
    int level = 2;  ///< of a plaintext whose block no decryption needs
    Interface interface = interface_of_tests();
    Vector slots = slots_of(std::size_t{1} << (log_degree - 1), 0.3);

    explicit Work(const std::string& folder)
        : secret_file(folder + "/secret.key"),
          evaluation_file(folder + "/evaluation.key"),
          public_file(folder + "/public.key") {}

    std::unique_ptr<CkksEngine> client() const {
        auto ground = std::make_unique<Ground>(chain_of(interface.parameters), 0);
        write_keys(interface, *ground, {secret_file, evaluation_file, public_file});
        Role role = client_role(interface, *ground, secret_file);
        return std::make_unique<CkksEngine>(std::move(ground), std::move(role));
    }

    /// All keys, and what a client does with its secret, which is the same one.
    void run() const {
        begin_entropy();
        {
            const Ground ground(chain_of(interface.parameters), 0);
            random_identity();  // as `write_keys` begins
            const Coefficients secret = uniform_secret(ground.ring.degree());
            const auto maker = std::make_unique<KeyMaker>(ground.ring, secret, fresh_seed());
            maker->make(needs_of_tests());
        }
        begin_entropy();
        const std::unique_ptr<CkksEngine> engine = client();
        engine->decrypt(engine->encrypt(slots, level));
        auto ground = std::make_unique<Ground>(chain_of(interface.parameters), 0);
        Role role = public_role(interface, *ground, public_file);
        CkksEngine(std::move(ground), std::move(role)).encrypt(slots, level);
    }
};

Coefficients turned(const Coefficients& secret, std::uint32_t galois) {
    Coefficients result(secret.size());
    for (std::size_t at = 0; at < secret.size(); ++at) {
        const std::size_t place = at * galois % (2 * secret.size());
        result[place % secret.size()] =
            static_cast<std::int8_t>(place < secret.size() ? secret[at] : -secret[at]);
    }
    return result;
}

/// A secret, its values, and those of the secret of the last rotation.
void add_secret(std::vector<Needle>& needles, const Ring& ring, const std::string& name,
                const Coefficients& secret) {
    const auto values = [&ring](const Coefficients& coefficients) {
        const Words words = transformed_secret(ring, coefficients);
        return downloaded(words.get(), words.size());
    };
    const std::uint32_t back = inverse_galois(ring, galois_of(ring, ring.slots() - 1));
    needles.push_back(needle(name, secret));
    needles.push_back(needle(name + ", values", values(secret)));
    needles.push_back(needle(name + ", turned", values(turned(secret, back))));
}

/// What `Work` makes, made once more of the same entropy.
std::vector<Needle> needles_of(const Work& work) {
    const Ground ground(chain_of(work.interface.parameters), 0);
    const Ring& ring = ground.ring;
    std::vector<Needle> needles;
    const auto seed = [&needles](const std::string& name) {
        Needle made{name, {entropy_given.end() - 32, entropy_given.end()}};
        needles.push_back(made);
    };
    random_identity();
    const Coefficients secret = uniform_secret(ring.degree());
    seed("the seed of the secret");
    add_secret(needles, ring, "the secret", secret);
    fresh_seed();  // of masks, which is public
    fresh_seed();
    seed("the seed of the keys' errors");
    const Coefficients sparse = sparse_secret(ring.degree(), 32);
    seed("the seed of the sparse secret");
    add_secret(needles, ring, "the sparse secret", sparse);

    random_identity();  // of the drafts of two files
    random_identity();
    const SecretKey key(ring, secret);
    const auto seed_at = [&needles](const std::string& name, std::size_t start) {
        const auto first = entropy_given.begin() + static_cast<std::ptrdiff_t>(start);
        needles.push_back({name, {first, first + 32}});
    };
    const std::size_t before_public = entropy_given.size();
    const std::vector<Word> zeros(ring.size_q() * ring.degree(), 0);
    const PublicKey public_key(
        ring, key.encrypt(uploaded(ring.memory(), zeros), ring.size_q()).polys);
    seed_at("the seed of the public key's errors", before_public);
    random_identity();  // of the draft of the public key
    Encoder encoder(ring);
    const std::size_t limbs = ring.chain().limbs_at(work.level);
    const double scale = ring.chain().scales[static_cast<std::size_t>(work.level)];
    const Words plaintext = encoder.encode(work.slots, scale, limbs);
    needles.push_back(needle("the plaintext", downloaded(plaintext.get(), plaintext.size())));
    const std::size_t before = entropy_given.size();
    const Polys x = key.encrypt(plaintext, limbs).polys;
    seed_at("the seed of an encryption's errors", before);
    const Words decrypted = key.decrypt(x, 2);
    needles.push_back(needle("the decryption", downloaded(decrypted.get(), decrypted.size())));
    const ComplexVector slots = encoder.decode(decrypted, scale);
    ComplexVector in_transform(slots.size());
    for (std::size_t at = 0; at < slots.size(); ++at) {
        in_transform[reverse_bits(static_cast<std::uint32_t>(at), log_degree - 1)] = slots[at];
    }
    needles.push_back(needle("the decryption's slots in the transform", in_transform));
    ring.backward(decrypted.get(), decrypted.get(), 2);
    needles.push_back(
        needle("the decryption's coefficients", downloaded(decrypted.get(), decrypted.size())));

    const std::size_t start = entropy_given.size();
    const Coefficients random_mask = uniform_secret(ring.degree());
    needles.push_back(needle("the mask of an encryption", random_mask));
    const Words values = transformed_secret(ring, random_mask);
    needles.push_back(needle("the mask's values", downloaded(values.get(), values.size())));
    seed_at("the seed of the mask", start);
    fresh_seed();
    seed("the seed of an encryption's first errors");
    fresh_seed();
    seed("the seed of an encryption's second errors");
    return needles;
}

/// In another process, whose memory is not searched.
std::vector<Needle> needles_from_child(const Work& work) {
    int ends[2];
    if (::pipe(ends) != 0) {
        throw Error("no pipe");
    }
    const pid_t child = ::fork();
    if (child == 0) {
        std::string text;
        for (const Needle& one : needles_of(work)) {
            text += one.name + '\n' + std::to_string(one.bytes.size()) + '\n';
            text.append(one.bytes.begin(), one.bytes.end());
        }
        const bool whole = ::write(ends[1], text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size());
        ::_exit(whole ? 0 : 1);
    }
    ::close(ends[1]);
    std::string text;
    char piece[4096];
    for (ssize_t size = 0; (size = ::read(ends[0], piece, sizeof piece)) > 0;) {
        text.append(piece, static_cast<std::size_t>(size));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) {
        throw Error("the other process failed");
    }
    std::vector<Needle> needles;
    std::istringstream all(text);
    for (Needle one; std::getline(all, one.name); needles.push_back(one)) {
        std::string size;
        std::getline(all, size);
        one.bytes.resize(std::stoul(size));
        all.read(reinterpret_cast<char*>(one.bytes.data()),
                 static_cast<std::streamsize>(one.bytes.size()));
    }
    return needles;
}

bool contains(const std::vector<std::uint8_t>& piece, std::size_t size, const Needle& one) {
    std::uint8_t plain[needle_size];
    std::transform(one.bytes.begin(), one.bytes.end(), plain,
                   [](int byte) { return static_cast<std::uint8_t>(byte ^ mask); });
    return ::memmem(piece.data(), size, plain, one.bytes.size()) != nullptr;
}

/// Names what is found in this process's memory. The stack is left out: nothing wipes its dead
/// frames, as docs/security.md says.
void search(const std::vector<Needle>& needles) {
    std::ifstream maps("/proc/self/maps");
    const Descriptor memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    std::vector<std::uint8_t> piece(std::size_t{1} << 20);
    std::set<std::string> found;
    for (std::string line; std::getline(maps, line);) {
        std::size_t begin = 0;
        std::size_t end = 0;
        char rights[5] = {};
        std::sscanf(line.c_str(), "%zx-%zx %4s", &begin, &end, rights);
        const bool shadow = end - begin >= std::size_t{1} << 28;  // of the sanitizer
        if (std::strncmp(rights, "rw", 2) != 0 || shadow ||
            line.find("[stack]") != std::string::npos) {
            continue;
        }
        for (std::size_t at = begin; at < end; at += piece.size() - needle_size) {
            const ssize_t size = ::pread(memory.number(), piece.data(),
                                         std::min(piece.size(), end - at),
                                         static_cast<off_t>(at));
            for (const Needle& one : needles) {
                if (size > 0 && contains(piece, static_cast<std::size_t>(size), one)) {
                    found.insert(one.name);
                }
            }
        }
    }
    for (const std::string& name : found) {
        std::cout << "left: " << name << '\n';
    }
}

/// A block of the pool that held a secret holds zeros, however the array was moved.
void pool() {
    const auto memory = std::make_shared<Memory>(0);
    constexpr std::size_t size = 1000;
    const Word* place = nullptr;
    for (const bool secret : {false, true}) {
        Words first(*memory, size);
        if (secret) {
            first = as_secret(std::move(first));
        }
        upload(first.get(), std::vector<Word>(size, ~Word{0}).data(), first.bytes());
        Words second = std::move(first);
        Words third;
        third = std::move(second);
        place = third.get();
        third = Words();
        const Words next(*memory, size);
        const std::vector<Word> words = downloaded(next.get(), size);
        const Word expected = secret ? 0 : ~Word{0};
        if (next.get() != place ||
            std::count(words.begin(), words.end(), expected) != std::ptrdiff_t{size}) {
            throw Error("a block of the pool holds something else");
        }
    }
}

void wiped(const std::string& folder) {
    const Work work(folder);
    const std::vector<Needle> needles = needles_from_child(work);
    std::thread([&work] { work.run(); }).join();
    search(needles);
    std::cout << "of " << needles.size() << '\n';
    // The search finds what is there: the secret of a client that still lives.
    Ground ground(chain_of(work.interface.parameters), 0);
    const Role role = client_role(work.interface, ground, work.secret_file);
    search(needles);
}

int run(const std::vector<std::string>& words) {
    const std::string& command = words[0];
    const int given = words.size() > 1 ? std::atoi(words[1].c_str()) : 0;
    const auto count = static_cast<std::uint32_t>(given);
    begin_entropy();
    if (command == "errors") {
        errors(count);
    } else if (command == "uniform") {
        std::vector<Word> moduli;
        for (std::size_t at = 2; at < words.size(); ++at) {
            moduli.push_back(std::stoull(words[at]));
        }
        uniform(count, moduli);
    } else if (command == "ternary") {
        ternary(given);
    } else if (command == "sparse") {
        sparse(given);
    } else if (command == "digests") {
        digests();
    } else if (command == "arithmetic") {
        arithmetic();
    } else if (command == "pool") {
        pool();
    } else {
        wiped(words[1]);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
