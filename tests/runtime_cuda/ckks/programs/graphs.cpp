// Bootstraps by graphs and without them, by the same keys, on CUDA's stand-in, at a ring that is too small
// to be secure. Prints a line for each check: what it is, whether every bit is the same, and how many
// graphs were launched for it.
//
//     graphs FILE          of atlasc/emit/parameter_set.py, with --copies 1 32
//     graphs FILE threads  two threads at once
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"
#include "ckks/value.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc;

/// With keys, and none that decrypts.
std::unique_ptr<ckks::CkksEngine> server(const conformance::Bootstrapped& set,
                                         std::shared_ptr<ckks::Memory> memory,
                                         const ckks::Role& role, const char* graphs) {
    graphs == nullptr ? unsetenv("ATLASC_GRAPHS") : setenv("ATLASC_GRAPHS", graphs, 1);
    auto ground = std::make_unique<ckks::Ground>(ckks::chain_of(set.interface.parameters),
                                                 std::move(memory));
    auto engine = std::make_unique<ckks::CkksEngine>(
        std::move(ground), ckks::Role{role.identity, std::nullopt, role.keys});
    engine->bootstrap_by(set.record);
    return engine;
}

struct Case {
    std::string name;
    std::vector<int> levels;  ///< of the operands
    bool products;            ///< whether they are products that wait for their divisions
    bool narrow;
    int to;
};

class Graphs {
public:
    explicit Graphs(const std::string& path)
        : set_(conformance::bootstrapped(path)),
          memory_(std::make_shared<ckks::Memory>(0)),
          ground_(std::make_unique<ckks::Ground>(ckks::chain_of(set_.interface.parameters), memory_)),
          role_(ckks::fresh_role(set_.interface, *ground_)),
          direct_(server(set_, memory_, role_, "off")),
          client_(std::move(ground_), ckks::Role{role_.identity, std::move(role_.secret), role_.keys}),
          repeated_(server(set_, memory_, role_, nullptr)) {}

    int top() const { return *set_.interface.parameters.bootstrap_level; }

    /// Rounds of a case, each of other ciphertexts: whether all are the same.
    bool same(const Case& one, int rounds, double seed) {
        bool found = true;
        for (int round = 0; round < rounds; ++round) {
            const Ciphertexts xs = operands(one, seed + round);
            found = words(*repeated_, one, xs) == words(*direct_, one, xs) && found;
        }
        return found;
    }

    void tell(const Case& one, int rounds) {
        const std::size_t before = stand_in::graphs;
        const bool found = same(one, rounds, 1.0);
        std::cout << one.name << ": " << (found ? "same" : "different") << ", "
                  << stand_in::graphs - before << " graphs" << std::endl;
    }

    /// Something else takes more than the memory that is left: the engine gives back what it can have
    /// again. Throws Error where that is nothing.
    void press() {
        const ckks::Array<char> others(*memory_, memory_->left() + 1);
    }

private:
    Ciphertexts operands(const Case& one, double seed) {
        const std::size_t size = client_.slots();
        const std::size_t period = one.narrow ? size / conformance::copies : size;
        Ciphertexts xs;
        for (const int level : one.levels) {
            Vector slots(size);
            for (std::size_t slot = 0; slot < size; ++slot) {
                slots[slot] = std::sin(seed * static_cast<double>(slot % period + xs.size() + 1));
            }
            const std::lock_guard<std::mutex> alone(mutex_);  // a client is one thread
            const Ciphertext x = client_.encrypt(slots, one.products ? level + 1 : level);
            xs.push_back(one.products ? client_.square(x) : x);
        }
        return xs;
    }

    /// Those of the results. Each engine is given operands in the form that they have now.
    std::vector<std::vector<ckks::Word>> words(ckks::CkksEngine& engine, const Case& one,
                                               const Ciphertexts& xs) const {
        Ciphertexts own;
        for (const Ciphertext& x : xs) {
            own.push_back(std::make_shared<ckks::Held>(ckks::of(x)));
        }
        const std::size_t period =
            one.narrow ? engine.slots() / conformance::copies : engine.slots();
        std::vector<std::vector<ckks::Word>> found;
        for (const Ciphertext& x : engine.bootstrap_many(own, period, one.to)) {
            const ckks::Value value = ckks::of(x);
            found.push_back({static_cast<ckks::Word>(value.level), value.limbs});
            const auto polys =
                ckks::downloaded(value.polys->words.get(), value.polys->words.size());
            found.back().insert(found.back().end(), polys.begin(), polys.end());
        }
        return found;
    }

    conformance::Bootstrapped set_;
    std::shared_ptr<ckks::Memory> memory_;
    std::unique_ptr<ckks::Ground> ground_;
    ckks::Role role_;
    std::unique_ptr<ckks::CkksEngine> direct_;
    ckks::CkksEngine client_;
    std::unique_ptr<ckks::CkksEngine> repeated_;  ///< the last one, which is asked to give back
    std::mutex mutex_;
};

void run(const std::string& path) {
    Graphs graphs(path);
    const int top = graphs.top();
    const Case narrow{"narrow", {3}, false, true, 9};
    graphs.tell(narrow, 3);
    graphs.tell({"two", {3, 3}, false, false, 9}, 3);  // takes more room
    graphs.tell({"of another level", {5}, false, true, top}, 3);
    graphs.tell({"of a product", {4}, true, true, top}, 3);
    graphs.press();
    graphs.tell({"narrow again", narrow.levels, false, true, narrow.to}, 2);
}

void run_threads(const std::string& path) {
    Graphs graphs(path);
    const Case low{"low", {3, 3}, false, false, 9};
    const Case narrow{"narrow", {3}, false, true, 9};
    bool found[2] = {};
    std::thread other([&] { found[1] = graphs.same(narrow, 4, 10.0); });
    found[0] = graphs.same(low, 3, 20.0) && graphs.same(narrow, 2, 30.0);
    other.join();
    std::cout << "threads: " << (found[0] && found[1] ? "same" : "different") << ", "
              << stand_in::graphs << " graphs" << std::endl;
}

}  // namespace

int main(int count, char** argv) {
    try {
        (count > 2 ? run_threads : run)(argv[1]);
        return 0;
    } catch (const Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
