// The check of a build, on its own: prints nothing where the kernels are right.
#include <iostream>

#include "atlasc/base/error.hpp"
#include "devices/host/check_kernels.hpp"

int main() {
    using namespace atlasc::ckks;
    const auto prime = [](Word q) {
        const Wide ratio = ~static_cast<Wide>(0) / q;
        return Prime{q, static_cast<Word>(ratio), static_cast<Word>(ratio >> 64)};
    };
    try {
        // 1 modulo 2^13: of 50, 40 and 20 bits.
        check_kernels({prime(1125899906826241), prime(1099511480321), prime(1032193)});
    } catch (const atlasc::Error& error) {
        std::cout << error.what() << '\n';
    }
    return 0;
}
