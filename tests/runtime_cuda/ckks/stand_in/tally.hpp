// What a GPU would be asked to do: launches of kernels, and the bytes that they read and write.
#pragma once

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <typeinfo>

namespace stand_in {

struct Work {
    std::uint64_t launches = 0;
    double bytes = 0;
    std::uint64_t limbs = 0;  ///< transformed
};

/// Numbers that go through half of a transform, forwards and backwards; products of two words; products
/// of rotated ciphertexts and plaintexts; times that a block waits for plaintexts, of all blocks.
struct Arithmetic {
    double forwards = 0;
    double backwards = 0;
    double products = 0;
    double rotated = 0;
    double gathered = 0;
};

/// A kernel, its blocks, its bytes and its arithmetic.
using Launch = std::tuple<std::string, std::uint64_t, double, double, double, double, double, double>;

/// Once it has begun, nothing is computed any more: what would be is counted.
struct Tally {
    bool begun = false;
    std::map<std::string, Work> work;  ///< by kernel
    std::map<Launch, std::uint64_t> launches;  ///< those that are alike
    std::uint64_t graphs = 0;          ///< launched
    std::uint64_t in_graphs = 0;       ///< launches of kernels that no host made

    void add(const std::string& kernel, std::uint64_t launches, double bytes,
             std::uint64_t limbs = 0) {
        Work& of = work[kernel];
        of.launches += launches;
        of.bytes += bytes;
        of.limbs += limbs;
    }

    void add(const std::string& kernel, std::uint64_t blocks, double bytes, const Arithmetic& does) {
        add(kernel, 1, bytes);
        ++launches[{kernel, blocks, bytes, does.forwards, does.backwards, does.products,
                    does.rotated, does.gathered}];
    }

    void clear() {
        work.clear();
        launches.clear();
        graphs = 0;
        in_graphs = 0;
    }

    void launch_graph(std::uint64_t launches) {
        graphs += 1;
        in_graphs += launches;
    }
};

inline Tally& tally() {
    static Tally all;
    return all;
}

/// The name of a kernel's type, and of the first type that it is a template of.
template <typename Kernel>
const std::string& name_of() {
    static const std::string name = [] {
        int status = 0;
        char* text = abi::__cxa_demangle(typeid(Kernel).name(), nullptr, nullptr, &status);
        std::string found = status == 0 ? text : typeid(Kernel).name();
        std::free(text);
        for (const char* space : {"atlasc::ckks::", "(anonymous namespace)::"}) {
            for (std::size_t at = 0; (at = found.find(space)) != std::string::npos;) {
                found.erase(at, std::string(space).size());
            }
        }
        const std::size_t first = found.find('<');
        if (first == std::string::npos) {
            return found;
        }
        const std::string inner =
            found.substr(first + 1, found.find_first_of("<,>", first + 1) - first - 1);
        const bool is_type = inner.find_first_not_of("0123456789ul") != std::string::npos;
        return found.substr(0, first) + (is_type ? " of " + inner : "");
    }();
    return name;
}

}  // namespace stand_in
