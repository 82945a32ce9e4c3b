// Seconds of an engine's calls, on standard output: what `python -m benchmarks.engine.table` makes a cost
// table of (docs/costs.md). The calls are those of calls.hpp.
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
#include <set>
#include <sstream>
#include <thread>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "calls.hpp"
#include "programs.hpp"

namespace {

using namespace atlasc;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 3;
constexpr double round_seconds = 0.05;
constexpr int most_repetitions = 8;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class Bench {
public:
    Bench(Engine& client, Engine& server)
        : client_(client), server_(server), vector_(conformance::random_slots(server.slots())) {
        last_ = sent(0);
    }

    void measure(const std::set<int>& levels) {
        const conformance::Calls calls(server_, vector_);
        for (const int level : levels) {
            const Ciphertext x = sent(level);
            set("encrypt", level, [&] { client_.encrypt(vector_, level); });
            set("decrypt", level, [&] { client_.decrypt(x); });
            calls.each(x, sent(level), [&](const char* name, const std::function<void()>& call) {
                set(name, level, call);
            });
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
    conformance::add_rotations(interface);
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
    bench.measure(conformance::priced_levels(top));
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
