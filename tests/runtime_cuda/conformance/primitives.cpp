// Seconds of an engine's primitives as a cost table (docs/costs.md), on standard output.
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
#include <random>
#include <sstream>
#include <thread>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "programs.hpp"

namespace {

using namespace atlasc;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 3;
constexpr int repetitions = 8;

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

    /// Primitives at the levels of a program; `amounts` have keys at all of them.
    void measure(const std::vector<int>& levels, const std::vector<std::size_t>& amounts) {
        for (const int level : levels) {
            const Ciphertext x = sent(level);
            const Ciphertext y = sent(level);
            set("encrypt", level, [&] { client_.encrypt(vector_, level); });
            set("decrypt", level, [&] { client_.decrypt(x); });
            set("add", level, [&] { server_.add(x, y); });
            set("negate", level, [&] { server_.negate(x); });
            set("times_i", level, [&] { server_.times_i(x); });
            set("add_plain", level, [&] { server_.add_plain(x, another()); });
            set("rotate", level, [&] { server_.rotate(x, amounts[0]); });
            const std::vector<std::size_t> two(amounts.begin(), amounts.begin() + 2);
            const double both = seconds([&] { server_.rotate_many(x, two); });
            const double one = seconds_["rotate"][level];
            keep("rotate_hoisted", level, both - one);
            keep("hoist", level, 2 * one - both);
            if (level > 0) {
                products(level, x, y);
            }
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

    /// Seconds of one bootstrap of `count` ciphertexts whose slots repeat; says the error.
    double bootstrap(std::size_t count, std::size_t copies = 1) {
        const std::size_t period = vector_.size() / copies;
        vector_ = conformance::repeated(vector_, period);
        const Ciphertexts xs(count, sent(3));
        server_.bootstrap_many(xs, period);
        finish();
        const auto start = Clock::now();
        const Ciphertexts refreshed = server_.bootstrap_many(xs, period);
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

    /// A vector that no cache has.
    const Vector& another() {
        vector_[0] = std::fmod(vector_[0] + 0.123, 1.0);
        return vector_;
    }

    /// Until everything is done: a small copy waits for what was asked before it.
    void finish() { server_.save(last_); }

    double seconds(const std::function<void()>& call) {
        call();
        finish();
        double least = INFINITY;
        for (int round = 0; round < rounds; ++round) {
            auto start = Clock::now();
            for (int at = 0; at < repetitions; ++at) {
                call();
            }
            finish();
            const double all = since(start);
            start = Clock::now();
            finish();
            least = std::min(least, (all - since(start)) / repetitions);
        }
        return least;
    }

    void set(const char* name, int level, const std::function<void()>& call) {
        keep(name, level, seconds(call));
    }

    void keep(const char* name, int level, double value) {
        seconds_[name][level] = std::max(value, 1e-9);
    }

    /// Products wait to be rescaled; what their operands were left with is a price of its own.
    void products(int level, const Ciphertext& x, const Ciphertext& y) {
        set("mul", level, [&] { server_.mul(x, y); });
        set("square", level, [&] { server_.square(x); });
        set("mul_plain", level, [&] { server_.mul_plain(x, another()); });
        set("mul_scalar", level, [&] { server_.mul_plain(x, 0.5); });
        const double two = seconds([&] { server_.dot({x, y}, {y, x}); });
        keep("mul_lazy", level, two - seconds_["mul"][level]);
        // The second product needs its operand rescaled; at level 1 there is none, and the same
        // happens before a file is written.
        const double scalar = seconds_["mul_scalar"][level];
        const double more =
            level > 1 ? seconds([&] { server_.mul_plain(server_.mul_plain(x, 0.5), 0.5); }) - scalar
                      : seconds([&] { server_.rotate(server_.mul_plain(x, 0.5), 1); }) -
                            seconds_["rotate"][0];
        keep("rescale", level, more - scalar);
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
    const conformance::Bootstrapped set =
        refreshes ? conformance::bootstrapped(arguments[3])
                  : conformance::Bootstrapped{
                        conformance::leveled(std::stoi(arguments[3]), std::stoi(arguments[4]),
                                             std::stoi(arguments[5])),
                        nullptr, ""};
    const Interface& interface = set.interface;
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
    bench.measure({0, 1, top / 2, top}, {1, 64});
    const Moduli& moduli = *interface.parameters.moduli;
    std::ostringstream bootstrap;
    bootstrap << "null";
    if (refreshes) {
        bootstrap.str("");
        bootstrap << "{\"seconds\": " << bench.bootstrap(2) << ", \"key_seconds\": " << key_seconds
                  << ", \"measured\": true, \"one_seconds\": " << bench.bootstrap(1)
                  << ", \"narrow_seconds\": " << bench.bootstrap(1, conformance::copies) << "}";
    }
    std::cout << "{\n \"format\": 1,\n \"backend\": \"" << built_backend().name
              << "\",\n \"library\": \"2.1\",\n \"machine\": {\"processor\": \"" << arguments[0]
              << "\", \"threads\": " << std::thread::hardware_concurrency()
              << ", \"memory_gib\": " << arguments[1] << "},\n \"date\": \"" << today()
              << "\",\n \"other_work\": null,\n \"note\": \"\",\n \"bootstrap\": "
              << bootstrap.str() << ",\n \"sets\": [\n  {\"parameters\": {\"log_ring_degree\": "
              << std::log2(2.0 * static_cast<double>(interface.parameters.slots))
              << ", \"levels\": " << top
              << ", \"special_primes\": " << moduli.special.size() << ", \"bootstrap\": \""
              << set.name << "\"},\n   \"seconds\": {" << bench.json() << "}}\n ]\n}\n";
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
