// What a GPU would be asked to do: launches of kernels, and the bytes that they read and write.
#pragma once

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <typeinfo>

namespace stand_in {

struct Work {
    std::uint64_t launches = 0;
    double bytes = 0;
    std::uint64_t limbs = 0;  ///< transformed
};

/// Once it has begun, nothing is computed any more: what would be is counted.
struct Tally {
    bool begun = false;
    std::map<std::string, Work> work;  ///< by kernel

    void add(const std::string& kernel, std::uint64_t launches, double bytes,
             std::uint64_t limbs = 0) {
        Work& of = work[kernel];
        of.launches += launches;
        of.bytes += bytes;
        of.limbs += limbs;
    }
};

inline Tally& tally() {
    static Tally all;
    return all;
}

/// The name of a kernel's type, without what it is a template of.
template <typename Kernel>
const std::string& name_of() {
    static const std::string name = [] {
        int status = 0;
        char* text = abi::__cxa_demangle(typeid(Kernel).name(), nullptr, nullptr, &status);
        std::string found = status == 0 ? text : typeid(Kernel).name();
        std::free(text);
        found = found.substr(0, found.find('<'));
        return found.substr(found.rfind(':') + 1);
    }();
    return name;
}

}  // namespace stand_in
