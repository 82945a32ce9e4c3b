// Seconds of an engine's calls, on standard output: what `python -m benchmarks.engine.table` makes a cost
// table of (docs/costs.md). The calls are those of atlasc/targets/cpu/calibration.py.
//
//     primitives DEVICE MEMORY_GIB leveled LOG_DEGREE LEVELS SPECIAL_PRIMES
//     primitives DEVICE MEMORY_GIB bootstrapped FILE
//
// Errors of a bootstrap, and what the engine did between, go to standard error.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "programs.hpp"

namespace {

using namespace atlasc;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 3;
constexpr double round_seconds = 0.05;
constexpr int most_repetitions = 8;
constexpr std::size_t few = 2, many = 8;   ///< rotations of two hoisted calls
constexpr std::size_t plaintexts = 8;      ///< of a measured sum
constexpr std::size_t period = 256;        ///< slots after which the plaintexts of a transform repeat

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Vector random_slots(std::size_t slots) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> number(-1.0, 1.0);
    Vector vector(slots);
    std::generate(vector.begin(), vector.end(), [&] { return number(random); });
    return vector;
}

class Bench {
public:
    Bench(Engine& client, Engine& server)
        : client_(client), server_(server), vector_(random_slots(server.slots())) {
        last_ = sent(0);
    }

    void measure(const std::vector<int>& levels) {
        std::vector<std::size_t> amounts(many);
        std::iota(amounts.begin(), amounts.end(), 1);
        const std::vector<std::size_t> first(amounts.begin(), amounts.begin() + few);
        for (const int level : levels) {
            const Ciphertext x = sent(level);
            const Ciphertext y = sent(level);
            set("encrypt", level, [&] { client_.encrypt(vector_, level); });
            set("decrypt", level, [&] { client_.decrypt(x); });
            set("add", level, [&] { server_.add(x, y); });
            set("negate", level, [&] { server_.negate(x); });
            set("times_i", level, [&] { server_.times_i(x); });
            set("add_plain", level, [&] { server_.add_plain(x, vector_); });
            set("add_scalar", level, [&] { server_.add_plain(x, 0.3); });
            set("rotate", level, [&] { server_.rotate(x, 1); });
            set("few", level, [&] { server_.rotate_many(x, first); });
            set("many", level, [&] { server_.rotate_many(x, amounts); });
            set("mul", level, [&] { server_.settle({server_.mul(x, y)}); });
            set("mul_lazy", level, [&] { server_.mul(x, y); });
            set("square", level, [&] { server_.settle({server_.square(x)}); });
            set("mul_scalar", level, [&] { server_.mul_plain(x, 0.3); });
            set("scalar", level, [&] { server_.settle({server_.mul_plain(x, 0.3)}); });
            const std::vector<Plaintext> vectors(plaintexts, vector_);
            const Ciphertexts xs(plaintexts, x);
            set("mul_plain", level, [&] { server_.dot_plain(xs, vectors); });
            set("transform_results", level, x, {1, 0, 0, 8});
            set("transform_giants", level, x, {1, many, many, 1});
            set("transform_operands", level, x, {12, 1, 0, 4});
            set("transform_babies", level, x, {3, many, 0, 4});
            set("transform_products", level, x, {12, many, 0, 24});
            set("transform_vectors", level, x, {1, 4, 0, 8, true});
        }
    }

    std::string json() const {
        std::ostringstream text;
        const char* next = "";
        for (const auto& [name, levels] : seconds_) {
            text << next << "\n    \"" << name << "\": {";
            const char* separator = "";
            for (const auto& [level, value] : levels) {
                text << separator << '"' << level << "\": " << value;
                separator = ", ";
            }
            text << "}";
            next = ",";
        }
        return text.str();
    }

    /// Seconds of one bootstrap of `count` ciphertexts whose slots repeat, to a level; says the error.
    double bootstrap(int level, std::size_t count, std::size_t copies = 1) {
        const std::size_t period = vector_.size() / copies;
        vector_ = conformance::repeated(vector_, period);
        const Ciphertexts xs(count, sent(3));
        server_.bootstrap_many(xs, period, level);
        finish();
        const auto start = Clock::now();
        const Ciphertexts refreshed = server_.bootstrap_many(xs, period, level);
        finish();
        const double taken = since(start);
        const Vector slots = client_.decrypt(client_.load(server_.save(refreshed[0])));
        double worst = 0.0;
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            worst = std::max(worst, std::fabs(slots[slot] - vector_[slot]));
        }
        std::cerr << "bootstrap of " << count << ", " << copies << " copies: " << taken << " s, error 2^"
                  << std::log2(worst) << '\n';
        return taken;
    }

private:
    Ciphertext sent(int level) {
        return server_.load(client_.save(client_.encrypt(vector_, level)));
    }

    /// Until everything is done: a small copy waits for what was asked before it.
    void finish() { server_.save(last_); }

    void set(const char* name, int level, const std::function<void()>& call) {
        call();
        finish();
        auto start = Clock::now();
        call();
        finish();
        const int repetitions =
            std::clamp(static_cast<int>(round_seconds / since(start)), 1, most_repetitions);
        double least = INFINITY;
        for (int round = 0; round < rounds; ++round) {
            start = Clock::now();
            for (int at = 0; at < repetitions; ++at) {
                call();
            }
            finish();
            const double all = since(start);
            start = Clock::now();
            finish();
            least = std::min(least, (all - since(start)) / repetitions);
        }
        seconds_[name][level] = std::max(least, 1e-9);
    }

    /// Numbers of a measured transform's parts. Its steps are rotations by 1, 2, ..., or one by 0.
    struct Blocks {
        std::size_t operands, babies, giants, results;
        bool dense = false;
    };

    void set(const char* name, int level, const Ciphertext& x, const Blocks& blocks) {
        // An identity of 0: no engine keeps the plaintext.
        const std::size_t repeats = blocks.dense ? 1 : server_.slots() / period;
        const Vector numbers(vector_.begin(),
                             vector_.begin() + static_cast<std::ptrdiff_t>(vector_.size() / repeats));
        const Plaintext plaintext = Deferred{0, [&numbers] { return numbers; }, repeats};
        const auto amounts = [](std::size_t count) {
            std::vector<std::size_t> found(std::max<std::size_t>(count, 1));
            std::iota(found.begin(), found.end(), count == 0 ? 0 : 1);
            return found;
        };
        std::vector<GiantStep> steps;
        for (std::size_t result = 0; result < blocks.results; ++result) {
            for (const std::size_t giant : amounts(blocks.giants)) {
                steps.push_back({result, giant, {}});
                for (std::size_t operand = 0; operand < blocks.operands; ++operand) {
                    for (const std::size_t baby : amounts(blocks.babies)) {
                        steps.back().terms.emplace(BabyStep{operand, baby}, plaintext);
                    }
                }
            }
        }
        const Ciphertexts xs(blocks.operands, x);
        set(name, level, [&] { server_.transform(xs, steps, false); });
    }

    Engine& client_;
    Engine& server_;
    Vector vector_;
    Ciphertext last_;
    std::map<std::string, std::map<int, double>> seconds_;
};

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16];
    std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
    return text;
}

int run(const std::vector<std::string>& arguments) {
    const bool refreshes = arguments.size() == 4 && arguments[2] == "bootstrapped";
    if (!refreshes && (arguments.size() != 6 || arguments[2] != "leveled")) {
        throw Error("primitives DEVICE MEMORY_GIB leveled LOG_DEGREE LEVELS SPECIAL_PRIMES, or "
                    "primitives DEVICE MEMORY_GIB bootstrapped FILE");
    }
    conformance::Bootstrapped set =
        refreshes ? conformance::bootstrapped(arguments[3])
                  : conformance::Bootstrapped{
                        conformance::leveled(std::stoi(arguments[3]), std::stoi(arguments[4]),
                                             std::stoi(arguments[5])),
                        nullptr, ""};
    Interface& interface = set.interface;
    for (std::size_t amount = 1; amount <= many; ++amount) {
        int& level = interface.keys.rotations[amount];
        level = std::max(level, interface.parameters.max_level);
    }
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::temp_directory_path() / ("atlasc-primitives-" + std::to_string(std::random_device()()));
    fs::create_directory(folder);
    const std::string secret = (folder / "secret").string();
    const std::string evaluation = (folder / "evaluation").string();
    auto start = Clock::now();
    built_backend().generate_keys(interface, {secret, evaluation}, {});
    const double key_seconds = since(start);
    const auto key_bytes = fs::file_size(evaluation);
    const std::unique_ptr<Engine> client = built_backend().client_engine(interface, secret);
    start = Clock::now();
    const std::unique_ptr<Engine> server = built_backend().server_engine(interface, evaluation, 0);
    std::cerr << "keys: made in " << key_seconds << " s, " << (key_bytes >> 20)
              << " MiB, loaded in " << since(start) << " s\n";
    fs::remove_all(folder);

    if (refreshes) {
        server->bootstrap_by(set.record);
    }
    Bench bench(*client, *server);
    const int top = interface.parameters.max_level;
    std::set<int> levels;
    for (const double fraction : {0.05, 0.25, 0.6, 1.0}) {
        levels.insert(std::max(1, static_cast<int>(std::lround(fraction * top))));
    }
    bench.measure({levels.begin(), levels.end()});
    const Moduli& moduli = *interface.parameters.moduli;
    std::ostringstream bootstrap;
    bootstrap << "null";
    if (refreshes) {
        bootstrap.str("");
        bootstrap << "{\"seconds\": " << bench.bootstrap(top, 2) << ", \"key_seconds\": " << key_seconds
                  << ", \"measured\": true, \"one_seconds\": " << bench.bootstrap(top, 1)
                  << ", \"narrow_seconds\": " << bench.bootstrap(top, 1, conformance::copies) << "}";
    }
    std::cout << "{\n \"backend\": \"" << built_backend().name
              << "\",\n \"machine\": {\"processor\": \"" << arguments[0]
              << "\", \"threads\": " << std::thread::hardware_concurrency()
              << ", \"memory_gib\": " << arguments[1] << "},\n \"date\": \"" << today()
              << "\",\n \"keys\": {\"seconds\": " << key_seconds << ", \"bytes\": " << key_bytes
              << "},\n \"bootstrap\": "
              << bootstrap.str() << ",\n \"parameters\": {\"log_ring_degree\": "
              << std::log2(2.0 * static_cast<double>(interface.parameters.slots))
              << ", \"levels\": " << top
              << ", \"special_primes\": " << moduli.special.size() << ", \"bootstrap\": \""
              << set.name << "\"},\n \"seconds\": {" << bench.json() << "}\n}\n";
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const atlasc::Error& error) {
        std::cerr << "error: " << error.what() << "\n  " << error.why << "\n  " << error.remedy
                  << '\n';
        return 2;
    }
}
