// Peak memory of this program. getrusage would count that of the process that started it as well.
#pragma once

#include <fstream>
#include <string>

/// In KiB.
inline long peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::stol(line.substr(6));
        }
    }
    return 0;
}
