// What every engine has to do, checked against cleartext slots; linked with any engine.
//
//     conformance leveled LOG_DEGREE LEVELS SPECIAL_PRIMES
//     conformance bootstrapped FILE          of atlasc/emit/parameter_set.py, with --copies 1 32
//
// Prints a line for each check with the largest error, as a power of two; exits with 1 where any
// check fails.
#include <algorithm>
#include <cmath>
#include <complex>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "programs.hpp"

namespace {

using namespace atlasc;
namespace fs = std::filesystem;

constexpr double tolerance = 0x1p-20;
constexpr double bootstrap_tolerance = 0x1p-14;

using Complex = std::complex<double>;

/// A folder for key files, removed at the end.
struct Folder {
    explicit Folder(const std::string& name)
        : path(fs::temp_directory_path() / (name + std::to_string(std::random_device()()))) {
        fs::create_directory(path);
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    fs::path path;
};

class Suite {
public:
    explicit Suite(const Interface& interface)
        : interface_(interface), folder_("atlasc-conformance-") {
        built_backend().generate_keys(
            interface, {path("secret"), path("evaluation"), path("public")}, {});
        client_ = built_backend().client_engine(interface, path("secret"));
        server_ = built_backend().server_engine(interface, path("evaluation"), 0);
    }

    Engine& engine() { return *server_; }
    Engine& client() { return *client_; }
    int top() const { return interface_.parameters.max_level; }
    std::size_t slots() const { return interface_.parameters.slots; }
    std::string path(const char* name) const { return (folder_.path / name).string(); }
    bool failed() const { return failed_; }

    Vector random(double amplitude = 1.0) {
        std::uniform_real_distribution<double> number(-amplitude, amplitude);
        Vector vector(slots());
        std::generate(vector.begin(), vector.end(), [&] { return number(random_); });
        return vector;
    }

    ComplexVector random_complex() {
        const Vector real = random();
        const Vector imaginary = random();
        ComplexVector vector(slots());
        for (std::size_t slot = 0; slot < vector.size(); ++slot) {
            vector[slot] = {real[slot], imaginary[slot]};
        }
        return vector;
    }

    /// A fresh ciphertext that went to the server.
    Ciphertext sent(const Vector& vector, int level) {
        return server_->load(client_->save(client_->encrypt(vector, level)));
    }

    Vector received(const Ciphertext& x) {
        return client_->decrypt(client_->load(server_->save(x)));
    }

    /// Both parts of the slots, and the level that the engine says.
    void check(const std::string& name, const Ciphertext& found, const ComplexVector& expected,
               int level, double bound = tolerance) {
        const Vector real = received(found);
        const Vector other = received(server_->times_i(found));
        double error = 0.0;
        for (std::size_t slot = 0; slot < expected.size(); ++slot) {
            const Complex value(real[slot], -other[slot]);
            const double difference = std::abs(value - expected[slot]);
            error = std::isnan(difference) ? INFINITY : std::max(error, difference);
        }
        const int there = server_->level(found);
        report(name, error <= bound && there == level,
               "2^" + std::to_string(std::log2(error)) +
                   (there == level ? "" : ", at level " + std::to_string(there) + ", not " +
                                              std::to_string(level)));
    }

    void check(const std::string& name, const Ciphertext& found, const Vector& expected,
               int level, double bound = tolerance) {
        check(name, found, ComplexVector(expected.begin(), expected.end()), level, bound);
    }

    void refuses(const std::string& name, const std::function<void()>& operation) {
        try {
            operation();
            report(name, false, "nothing was refused");
        } catch (const Error& error) {
            report(name, true, error.what());
        }
    }

    void report(const std::string& name, bool good, const std::string& fact) {
        failed_ = failed_ || !good;
        std::cout << (good ? "ok    " : "FAILED ") << name << ": " << fact << std::endl;
    }

private:
    Interface interface_;
    Folder folder_;
    std::unique_ptr<Engine> client_;
    std::unique_ptr<Engine> server_;
    std::mt19937_64 random_{5};
    bool failed_ = false;
};

template <typename Left, typename Right, typename Function>
ComplexVector each(const Left& left, const Right& right, Function function) {
    ComplexVector result(left.size());
    for (std::size_t slot = 0; slot < result.size(); ++slot) {
        result[slot] = function(Complex(left[slot]), Complex(right[slot]));
    }
    return result;
}

template <typename Slots, typename Function>
ComplexVector each(const Slots& slots, Function function) {
    return each(slots, slots, [&](Complex x, Complex) { return function(x); });
}

ComplexVector turned(const ComplexVector& x, std::size_t amount) {
    ComplexVector result(x.begin() + static_cast<std::ptrdiff_t>(amount), x.end());
    result.insert(result.end(), x.begin(), x.begin() + static_cast<std::ptrdiff_t>(amount));
    return result;
}

const auto plus = [](Complex a, Complex b) { return a + b; };
const auto minus = [](Complex a, Complex b) { return a - b; };
const auto times = [](Complex a, Complex b) { return a * b; };

void linear(Suite& suite) {
    Engine& engine = suite.engine();
    const int top = suite.top();
    const Vector a = suite.random();
    const Vector b = suite.random();
    const Ciphertext x = suite.sent(a, top);
    const Ciphertext y = suite.sent(b, top);
    const Ciphertext low = suite.sent(b, 1);
    suite.check("fresh", x, a, top);
    suite.check("fresh at level 0", suite.sent(b, 0), b, 0);
    suite.check("add", engine.add(x, y), each(a, b, plus), top);
    suite.check("add at two levels", engine.add(x, low), each(a, b, plus), 1);
    suite.check("sub", engine.sub(x, y), each(a, b, minus), top);
    suite.check("sub at two levels", engine.sub(low, x), each(b, a, minus), 1);
    suite.check("negate", engine.negate(x), each(a, [](Complex v) { return -v; }), top);
    suite.check("times_i", engine.times_i(x), each(a, [](Complex v) { return v * Complex(0, 1); }),
                top);
    suite.check("times_i of a dropped one", engine.times_i(engine.drop_to(x, 1)),
                each(a, [](Complex v) { return v * Complex(0, 1); }), 1);
    const ComplexVector z = suite.random_complex();
    suite.check("add_plain number", engine.add_plain(x, -0.7),
                each(a, [](Complex v) { return v - 0.7; }), top);
    suite.check("add_plain vector", engine.add_plain(x, b), each(a, b, plus), top);
    suite.check("add_plain complex", engine.add_plain(x, z), each(a, z, plus), top);
    suite.check("add_plain to a dropped one", engine.add_plain(engine.drop_to(x, 0), b),
                each(a, b, plus), 0);
    for (int level = top; level >= 0; --level) {
        suite.check("drop_to " + std::to_string(level), engine.drop_to(x, level), a, level);
    }
    suite.check("drop twice", engine.drop_to(engine.drop_to(x, 1), 0), a, 0);
}

void products(Suite& suite) {
    Engine& engine = suite.engine();
    const int top = suite.top();
    const Vector a = suite.random();
    const Vector b = suite.random();
    const ComplexVector z = suite.random_complex();
    const Ciphertext x = suite.sent(a, top);
    const Ciphertext y = suite.sent(b, top);
    for (const double number : {0.3, -2.5, 1e-4, 0.0}) {
        suite.check("mul_plain " + std::to_string(number), engine.mul_plain(x, number),
                    each(a, [number](Complex v) { return v * number; }), top - 1);
    }
    suite.check("mul_plain vector", engine.mul_plain(x, b), each(a, b, times), top - 1);
    suite.check("mul_plain complex", engine.mul_plain(x, z), each(a, z, times), top - 1);
    suite.check("mul_plain complex twice", engine.mul_plain(x, z), each(a, z, times), top - 1);
    suite.check("mul_plain complex from the cache", engine.mul_plain(x, z), each(a, z, times),
                top - 1);
    for (const std::size_t run : {std::size_t{2}, std::size_t{64}, a.size()}) {
        Vector few(a.size() / run);  // one number for each run of slots
        ComplexVector pairs(a.size() / run);
        Vector all;
        ComplexVector all_pairs;
        for (std::size_t slot = 0; slot < a.size(); ++slot) {
            few[slot / run] = b[slot / run];
            pairs[slot / run] = z[slot / run];
            all.push_back(b[slot / run]);
            all_pairs.push_back(z[slot / run]);
        }
        const std::string name = " of one number for " + std::to_string(run) + " slots";
        suite.check("mul_plain vector" + name, engine.mul_plain(x, few), each(a, all, times),
                    top - 1);
        suite.check("mul_plain complex" + name, engine.mul_plain(x, pairs),
                    each(a, all_pairs, times), top - 1);
        suite.check("add_plain vector" + name, engine.add_plain(x, few), each(a, all, plus), top);
    }
    for (const std::size_t repeats : {std::size_t{2}, std::size_t{64}, a.size()}) {
        const auto few = static_cast<std::ptrdiff_t>(a.size() / repeats);
        const Vector once(b.begin(), b.begin() + few);
        const ComplexVector pairs(z.begin(), z.begin() + few);
        Vector all;
        ComplexVector all_pairs;
        for (std::size_t slot = 0; slot < a.size(); ++slot) {
            all.push_back(once[slot % once.size()]);
            all_pairs.push_back(pairs[slot % pairs.size()]);
        }
        const std::string name = " of slots that repeat " + std::to_string(repeats) + " times";
        const Plaintext said = Deferred{0, [&once] { return once; }, repeats};
        const Plaintext said_pairs = Deferred{0, [&pairs] { return pairs; }, repeats};
        suite.check("mul_plain" + name, engine.mul_plain(x, said), each(a, all, times), top - 1);
        suite.check("mul_plain, found" + name, engine.mul_plain(x, all), each(a, all, times),
                    top - 1);
        suite.check("mul_plain complex" + name, engine.mul_plain(x, said_pairs),
                    each(a, all_pairs, times), top - 1);
        suite.check("add_plain" + name, engine.add_plain(x, said), each(a, all, plus), top);
        suite.check("dot_plain" + name, engine.dot_plain({x, y, x}, {said, b, said_pairs}),
                    each(each(a, each(all, all_pairs, plus), times), each(b, b, times), plus),
                    top - 1);
    }
    for (int level = top; level >= 1; --level) {
        const Ciphertext dropped = engine.drop_to(x, level);
        const std::string at = " at level " + std::to_string(level);
        suite.check("mul_plain" + at, engine.mul_plain(dropped, b), each(a, b, times), level - 1);
        suite.check("mul_plain number" + at, engine.mul_plain(dropped, 0.9),
                    each(a, [](Complex v) { return v * 0.9; }), level - 1);
        suite.check("mul" + at, engine.mul(dropped, y), each(a, b, times), level - 1);
    }
    // Products of ciphertexts and of plaintexts at two levels, more than a device settles at once.
    Ciphertexts some;
    for (int at = 0; at < 14; ++at) {
        const Ciphertext low = engine.drop_to(x, at % 4 == 0 ? top - 1 : top);
        some.push_back(at % 3 == 0 ? engine.mul_plain(low, b) : engine.mul(low, y));
    }
    some.push_back(some.front());
    some.push_back(x);
    engine.settle(some);
    engine.settle(some);
    suite.check("a settled operand that is no product", some.back(), a, top);
    for (int at = 0; at < 14; ++at) {
        suite.check("settled " + std::to_string(at), some[static_cast<std::size_t>(at)],
                    each(a, b, times), at % 4 == 0 ? top - 2 : top - 1);
    }
    const ComplexVector expected_sum = each(each(a, b, times), each(b, z, times), plus);
    suite.check("dot_plain", engine.dot_plain({x, y}, {b, z}), expected_sum, top - 1);
    suite.check("dot_plain, a number", engine.dot_plain({x, y, x}, {b, z, -0.3}),
                each(expected_sum, a, [](Complex s, Complex v) { return s - 0.3 * v; }), top - 1);
    suite.check("dot_plain of one pair", engine.dot_plain({x}, {b}), each(a, b, times), top - 1);
    suite.check("dot_plain at two levels", engine.dot_plain({engine.drop_to(x, top - 1), y}, {b, z}),
                expected_sum, top - 2);
    suite.check("dot_plain of a product",
                engine.dot_plain({engine.mul(x, y), y}, {Vector(a.size(), 0.5), 0.25}),
                each(a, b, [](Complex u, Complex v) { return 0.5 * u * v + 0.25 * v; }), top - 2);
    Ciphertexts many;
    std::vector<Plaintext> factors;
    ComplexVector expected_many(a.size(), 0.0);
    for (int at = 0; at < 70; ++at) {  // more than a device takes at once
        many.push_back(at % 2 == 0 ? x : y);
        factors.emplace_back(0.01 * at);
        expected_many = each(expected_many, at % 2 == 0 ? a : b,
                             [at](Complex s, Complex v) { return s + 0.01 * at * v; });
    }
    suite.check("dot_plain of many", engine.dot_plain(many, factors), expected_many, top - 1);
    suite.check("square", engine.square(x), each(a, a, times), top - 1);
    const Ciphertext product = engine.mul(x, y);
    suite.check("square of a product", engine.square(product),
                each(a, b, [](Complex u, Complex v) { return u * v * u * v; }), top - 2);
    suite.check("double of a product", engine.add(product, product),
                each(a, b, [](Complex u, Complex v) { return 2.0 * u * v; }), top - 1);
    suite.check("product minus number", engine.add_plain(product, -1.0),
                each(a, b, [](Complex u, Complex v) { return u * v - 1.0; }), top - 1);
    suite.check("product minus vector", engine.add_plain(product, b),
                each(a, b, [](Complex u, Complex v) { return u * v + v; }), top - 1);
    suite.check("product plus fresh", engine.add(engine.mul(x, y), x),
                each(a, b, [](Complex u, Complex v) { return u * v + u; }), top - 1);
    suite.check("fresh minus product", engine.sub(x, engine.mul(x, y)),
                each(a, b, [](Complex u, Complex v) { return u - u * v; }), top - 1);
    suite.check("product plus plain product", engine.add(product, engine.mul_plain(x, z)),
                each(each(a, b, times), each(a, z, times), plus), top - 1);
    suite.check("products at two levels",
                engine.sub(engine.mul(x, y), engine.mul_plain(engine.mul_plain(x, b), 0.5)),
                each(a, b, [](Complex u, Complex v) { return 0.5 * u * v; }), top - 2);
    suite.check("dropped product", engine.drop_to(engine.mul(x, y), 0), each(a, b, times), 0);
    suite.check("negated product", engine.negate(engine.mul(x, y)),
                each(a, b, [](Complex u, Complex v) { return -u * v; }), top - 1);
    const Ciphertext third = suite.sent(b, top - 1);
    suite.check("dot", engine.dot({x, y, third}, {y, y, x}),
                each(a, b, [](Complex u, Complex v) { return 2.0 * u * v + v * v; }), top - 2);

    // Sums of products that grow: past what one kernel takes, and past what is held for later.
    Ciphertext doubled = product;
    for (double factor = 2.0; factor <= 8.0; factor *= 2.0) {
        const Ciphertext before = doubled;
        doubled = engine.add(doubled, doubled);
        suite.check("a product times " + std::to_string(factor), doubled,
                    each(a, b, [factor](Complex u, Complex v) { return factor * u * v; }), top - 1);
        suite.check("a product plus half of it", engine.add(before, engine.sub(doubled, product)),
                    each(a, b, [factor](Complex u, Complex v) {
                        return (1.5 * factor - 1.0) * u * v;
                    }),
                    top - 1);
    }
    Ciphertext many_products = engine.add_plain(engine.dot_plain({x, y}, {0.5, -0.25}), 0.125);
    Ciphertexts lefts;
    Ciphertexts rights;
    for (int at = 0; at < 11; ++at) {
        many_products = engine.add(many_products, engine.mul(x, at % 2 == 0 ? x : y));
        lefts.push_back(x);
        rights.push_back(at % 2 == 0 ? x : y);
    }
    const ComplexVector eleven =
        each(a, b, [](Complex u, Complex v) { return 6.0 * u * u + 5.0 * u * v; });
    const ComplexVector leaf = each(
        a, b, [](Complex u, Complex v) { return 0.5 * u - 0.25 * v + 0.125; });
    suite.check("a sum of eleven products", many_products, each(eleven, leaf, plus), top - 1);
    suite.check("dot of eleven pairs", engine.dot(lefts, rights), eleven, top - 1);
    suite.check("a number minus a sum of products",
                engine.add_plain(engine.negate(engine.add(product, engine.mul_plain(x, 0.5))), 1.0),
                each(a, b, [](Complex u, Complex v) { return 1.0 - u * v - 0.5 * u; }), top - 1);

    Ciphertext chain = x;
    ComplexVector expected(a.begin(), a.end());
    for (int level = top - 1; level >= 0; --level) {
        chain = engine.mul(chain, y);
        expected = each(expected, b, times);
        suite.check("product " + std::to_string(top - level), chain, expected, level);
    }
}

void rotations(Suite& suite, const std::vector<std::size_t>& amounts) {
    Engine& engine = suite.engine();
    const int top = suite.top();
    const Vector a = suite.random();
    const ComplexVector z = suite.random_complex();
    const Ciphertext x = suite.sent(a, top);
    const Ciphertext y = engine.mul_plain(x, z);
    const ComplexVector product = each(a, z, times);
    for (const std::size_t amount : amounts) {
        suite.check("rotate " + std::to_string(amount), engine.rotate(y, amount),
                    turned(product, amount), top - 1);
    }
    const Ciphertexts many = engine.rotate_many(y, amounts);
    for (std::size_t at = 0; at < amounts.size(); ++at) {
        suite.check("rotate_many " + std::to_string(amounts[at]), many.at(at),
                    turned(product, amounts[at]), top - 1);
    }
    // Of two levels, one by 0, and more than a device does at once.
    Ciphertexts some;
    std::vector<std::size_t> turns;
    std::vector<ComplexVector> wanted;
    for (std::size_t at = 0; at < 20; ++at) {
        const bool low = at % 3 == 0;
        turns.push_back(at == 7 ? 0 : amounts[at % amounts.size()]);
        some.push_back(low ? engine.drop_to(engine.square(x), top - 2) : engine.square(x));
        wanted.push_back(turned(each(a, a, times), turns.back()));
    }
    const Ciphertexts each_turned = engine.rotate_each(some, turns);
    for (std::size_t at = 0; at < some.size(); ++at) {
        suite.check("rotate_each " + std::to_string(at), each_turned.at(at), wanted[at],
                    at % 3 == 0 ? top - 2 : top - 1);
    }
    suite.check("rotate below the key's level", engine.rotate(engine.drop_to(x, 0), amounts[0]),
                turned(ComplexVector(a.begin(), a.end()), amounts[0]), 0);
    suite.check("conjugate", engine.conjugate(y),
                each(product, [](Complex v) { return std::conj(v); }), top - 1);
    suite.check("conjugate at level 0", engine.conjugate(engine.drop_to(y, 0)),
                each(product, [](Complex v) { return std::conj(v); }), 0);
    suite.report("no rotations", engine.rotate_many(x, {}).empty(), "an empty list");
}

/// Two blocks of rows by two of columns, whose diagonals repeat so often. A chained one has steps without a
/// key.
void transforms(Suite& suite, const std::vector<std::size_t>& amounts, std::size_t repeats,
                bool chained) {
    Engine& engine = suite.engine();
    const Vector a = suite.random();
    const Vector b = suite.random();
    const ComplexVector columns[2] = {{a.begin(), a.end()}, {b.begin(), b.end()}};
    std::vector<GiantStep> steps;
    std::vector<ComplexVector> expected(2, ComplexVector(suite.slots()));
    const std::size_t both = amounts[0] + amounts[1];
    const std::vector<std::pair<std::size_t, std::size_t>> some{
        {0, amounts[0]}, {0, 0}, {1, amounts[1]}, {1, amounts[0]}};
    const std::vector<std::pair<std::size_t, std::size_t>> chain{
        {0, 0}, {0, amounts[0]}, {0, 2 * amounts[0]}, {1, amounts[1]}, {1, both}};
    for (const auto& [result, rotation] : chained ? chain : some) {
        steps.push_back({result, rotation, {}});
        for (std::size_t operand = 0; operand < 2; ++operand) {
            for (const std::size_t baby : {std::size_t{0}, amounts[operand]}) {
                ComplexVector once = suite.random_complex();
                once.resize(suite.slots() / repeats);
                ComplexVector all;
                while (all.size() < suite.slots()) {
                    all.insert(all.end(), once.begin(), once.end());
                }
                const Deferred said{0, [once] { return once; }, repeats};
                steps.back().terms.emplace(BabyStep{operand, baby}, said);
                const ComplexVector product = each(turned(columns[operand], baby), all, times);
                expected[result] = each(expected[result], turned(product, rotation), plus);
            }
        }
    }
    const Ciphertexts found = engine.transform({suite.sent(a, 2), suite.sent(b, 1)}, steps, chained);
    for (std::size_t result = 0; result < 2; ++result) {
        suite.check((chained ? "chained transform " : "transform ") + std::to_string(result) + ", slots that repeat " +
                        std::to_string(repeats) + " times",
                    found.at(result), expected[result], 0);
    }
}

void refusals(Suite& suite, const Interface& interface) {
    Engine& engine = suite.engine();
    const Vector a = suite.random();
    const Ciphertext x = suite.sent(a, suite.top());
    const Ciphertext low = suite.sent(a, 0);
    suite.refuses("a product at level 0", [&] { engine.mul(x, low); });
    suite.refuses("a plain product at level 0", [&] { engine.mul_plain(low, 0.5); });
    suite.refuses("a rotation without a key", [&] { engine.rotate(x, 3); });
    suite.refuses("a vector of another size", [&] { engine.add_plain(x, Vector(3, 0.0)); });
    suite.refuses("a level that is higher", [&] { engine.drop_to(low, 1); });
    suite.refuses("decryption by the server", [&] { engine.decrypt(x); });
    suite.refuses("encryption by the server", [&] { engine.encrypt(a, 0); });
    for (const double value : {1e300, std::nan(""), static_cast<double>(INFINITY)}) {
        suite.refuses("encryption of " + std::to_string(value),
                      [&] { suite.sent(Vector(a.size(), value), suite.top()); });
    }
    Bytes bytes = engine.save(x);
    const Ciphertext computed = engine.negate(low);
    suite.report("the size of a ciphertext",
                 bytes.size() == engine.saved_size(engine.level(x), true) &&
                     engine.save(low).size() == engine.saved_size(0, true) &&
                     engine.save(computed).size() == engine.saved_size(0, false) &&
                     engine.saved_size(0, false) <= engine.largest_size(0),
                 std::to_string(bytes.size()) + " bytes");
    suite.report("a ciphertext that is saved again", engine.save(engine.load(bytes)) == bytes, "");
    suite.check("a computed ciphertext that was saved", engine.load(engine.save(computed)),
                each(Vector(a.size(), -1.0), a, times), 0);
    suite.refuses("bytes of another size", [&] {
        engine.load(Bytes(bytes.begin(), bytes.end() - 8));
    });
    suite.refuses("no bytes", [&] { engine.load(Bytes()); });
    Bytes longer = bytes;
    longer.resize(longer.size() + 8);
    suite.refuses("bytes behind a ciphertext", [&] { engine.load(longer); });
    if (engine.backend().encrypts) {  // a simulated ciphertext has no checksum
        for (const std::size_t back : {std::size_t{1}, std::size_t{32}, bytes.size() - 48}) {
            Bytes changed = bytes;  // of the seed and of the residues
            changed[changed.size() - back] ^= 4;
            suite.refuses("a changed byte", [&] { engine.load(changed); });
        }
    }
    bytes[0] ^= 1;
    suite.refuses("a ciphertext of other keys", [&] { engine.load(bytes); });
    suite.refuses("the key file of the other role", [&] {
        built_backend().server_engine(interface, suite.path("secret"), 0);
    });
    suite.refuses("the secret key in the public one's place", [&] {
        built_backend().public_engine(interface, suite.path("secret"));
    });
    const auto sender = built_backend().public_engine(interface, suite.path("public"));
    const auto from_sender = [&](int level) {
        return engine.load(sender->save(sender->encrypt(a, level)));
    };
    suite.check("public key", from_sender(suite.top()), a, suite.top());
    suite.check("public key at level 0", from_sender(0), a, 0);
    suite.check("product under a public key", engine.mul(from_sender(suite.top()), x),
                each(a, a, times), suite.top() - 1);
    suite.refuses("decryption with a public key", [&] { sender->decrypt(sender->encrypt(a, 1)); });
    Bytes keys(fs::file_size(suite.path("evaluation")));
    std::ifstream(suite.path("evaluation"), std::ios::binary)
        .read(reinterpret_cast<char*>(keys.data()), static_cast<std::streamsize>(keys.size()));
    const auto by_bytes = built_backend().server_engine(
        interface, PlainFile::view("the keys", keys.data(), keys.size()), 0);
    const Ciphertext there = by_bytes->load(engine.save(x));
    suite.check("keys from bytes", engine.load(by_bytes->save(by_bytes->mul(there, there))),
                each(a, a, times), suite.top() - 1);
    Interface fewer = interface;  // of a program that needs one key of all that were made
    const auto [amount, level] = *interface.keys.rotations.rbegin();
    fewer.keys = {{{amount, level}}, -1, -1};
    const auto smaller = built_backend().server_engine(fewer, suite.path("evaluation"), 0);
    const int held = std::min(level, suite.top());
    const Ciphertext moved =
        smaller->rotate(smaller->load(engine.save(engine.drop_to(x, held))), amount);
    suite.check("keys of which some are not needed", engine.load(smaller->save(moved)),
                turned(ComplexVector(a.begin(), a.end()), amount), held);
    suite.refuses("half of the bytes of keys", [&] {
        built_backend().server_engine(
            interface, PlainFile::view("the keys", keys.data(), keys.size() / 2), 0);
    });
    suite.refuses("a device memory that is too small", [&] {
        built_backend().server_engine(interface, suite.path("evaluation"), 1 << 20);
    });
    for (const char* name : {"secret", "evaluation", "public"}) {
        suite.refuses("a changed byte in the file of " + std::string(name), [&] {
            const std::string changed = suite.path(name) + ".changed";
            fs::copy_file(suite.path(name), changed);
            std::fstream file(changed, std::ios::in | std::ios::out | std::ios::binary);
            file.seekg(-100, std::ios::end);  // of a digest, or of a key's last words
            const char was = static_cast<char>(file.get());
            file.seekp(-100, std::ios::end);
            file.put(static_cast<char>(was ^ 0x5a));
            file.close();
            if (std::string(name) == "secret") {
                built_backend().client_engine(interface, changed);
            } else if (std::string(name) == "public") {
                built_backend().public_engine(interface, changed);
            } else {
                built_backend().server_engine(interface, changed, 0);
            }
        });
    }
    Interface other = interface;
    other.parameters.max_level -= 1;
    suite.refuses("keys for other parameters", [&] {
        built_backend().client_engine(other, suite.path("secret"));
    });
    const auto mode = fs::status(suite.path("secret")).permissions();
    suite.report("the secret key is its owner's", (mode & fs::perms::group_all) == fs::perms::none,
                 "mode of the file");
}

void bootstrap(Suite& suite) {
    Engine& engine = suite.engine();
    const int level = suite.top();
    const Vector a = suite.random();
    const Vector b(suite.slots(), 1.0);
    const Vector c = suite.random(0.1);
    const Ciphertexts refreshed = engine.bootstrap_many(
        {suite.sent(a, 3), suite.sent(b, 5), suite.sent(c, 4)}, suite.slots(), level);
    suite.check("bootstrap, uniform slots", refreshed.at(0), a, level, bootstrap_tolerance);
    suite.check("bootstrap, ones", refreshed.at(1), b, level, bootstrap_tolerance);
    suite.check("bootstrap, alone", refreshed.at(2), c, level, bootstrap_tolerance);
    suite.check("product after it", engine.mul(refreshed[0], refreshed[2]), each(a, c, times),
                level - 1, bootstrap_tolerance);
    suite.check("sum with a fresh one", engine.add(refreshed[0], suite.sent(c, level)),
                each(a, c, plus), level, bootstrap_tolerance);

    const std::size_t period = suite.slots() / conformance::copies;
    const Vector d = conformance::repeated(a, period);
    const Vector e = conformance::repeated(c, period);
    const Ciphertexts narrow = engine.bootstrap_many(
        {suite.sent(d, 3), suite.sent(e, 6), suite.sent(d, 4)}, period, level);
    suite.check("narrow bootstrap, first of two", narrow.at(0), d, level, bootstrap_tolerance);
    suite.check("narrow bootstrap, second", narrow.at(1), e, level, bootstrap_tolerance);
    suite.check("narrow bootstrap, alone", narrow.at(2), d, level, bootstrap_tolerance);
    suite.check("product of two kinds", engine.mul(narrow[1], refreshed[0]), each(e, a, times),
                level - 1, bootstrap_tolerance);
    for (const int lower : {3, level / 2, level - 1}) {
        const std::string to = " to level " + std::to_string(lower);
        const Ciphertexts landed = engine.bootstrap_many(
            {suite.sent(a, 3), suite.sent(b, level), suite.sent(c, 4)}, suite.slots(), lower);
        suite.check("bootstrap" + to + ", first of two", landed.at(0), a, lower, bootstrap_tolerance);
        suite.check("bootstrap" + to + ", second", landed.at(1), b, lower, bootstrap_tolerance);
        suite.check("bootstrap" + to + ", alone", landed.at(2), c, lower, bootstrap_tolerance);
        suite.check("product of two levels" + to, engine.mul(landed[0], refreshed[2]),
                    each(a, c, times), lower - 1, bootstrap_tolerance);
        suite.check("rotation of it" + to, engine.rotate(landed[0], 1),
                    turned(ComplexVector(a.begin(), a.end()), 1), lower,
                    bootstrap_tolerance);
        const Ciphertexts few = engine.bootstrap_many({suite.sent(d, 3)}, period, lower);
        suite.check("narrow bootstrap" + to, few.at(0), d, lower, bootstrap_tolerance);
    }
    for (const int wrong : {0, level + 1}) {
        suite.refuses("a bootstrap to level " + std::to_string(wrong), [&] {
            engine.bootstrap_many({suite.sent(a, 3)}, suite.slots(), wrong);
        });
    }
}

int run_leveled(const std::vector<std::string>& numbers) {
    const Interface interface = conformance::leveled(
        std::stoi(numbers.at(0)), std::stoi(numbers.at(1)), std::stoi(numbers.at(2)));
    Suite suite(interface);
    linear(suite);
    products(suite);
    rotations(suite, {1, 5, 64, suite.slots() - 1});
    for (const std::size_t repeats : {1, 8, 16}) {
        transforms(suite, {1, 5}, repeats, false);
        transforms(suite, {1, 5}, repeats, true);
    }
    refusals(suite, interface);
    suite.refuses("a rotation above the level of its key",
                  [&] { suite.engine().rotate(suite.sent(suite.random(), suite.top()), 7); });
    suite.refuses("a bootstrap that the parameters lack",
                  [&] { suite.engine().bootstrap_many({suite.sent(suite.random(), 0)},
                                                         suite.slots(), 0); });
    return suite.failed() ? 1 : 0;
}

int run_bootstrapped(const std::string& path) {
    const conformance::Bootstrapped set = conformance::bootstrapped(path);
    Suite suite(set.interface);
    suite.engine().bootstrap_by(set.record);
    linear(suite);
    rotations(suite, {1, 64});
    bootstrap(suite);
    return suite.failed() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
        const std::string kind = arguments.empty() ? "" : arguments[0];
        if (kind == "leveled" && arguments.size() == 4) {
            return run_leveled({arguments.begin() + 1, arguments.end()});
        }
        if (kind == "bootstrapped" && arguments.size() == 2) {
            return run_bootstrapped(arguments[1]);
        }
        throw atlasc::Error("conformance leveled LOG_DEGREE LEVELS SPECIAL_PRIMES, or "
                            "conformance bootstrapped FILE");
    } catch (const atlasc::Error& error) {
        std::cerr << "error: " << error.what() << "\n  " << error.why << "\n  " << error.remedy
                  << '\n';
        return 2;
    }
}
