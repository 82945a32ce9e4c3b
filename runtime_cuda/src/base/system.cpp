#include "src/base/system.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/random.h>
#else
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include <fstream>
#include <string>
#endif

namespace atlasc::system {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

void forbid_core_files() {
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0;
        ::setrlimit(RLIMIT_CORE, &limit);
    }
}

}  // namespace

void* map_pages(std::size_t bytes) {
    void* found =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? nullptr : found;
}

void unmap_pages(void* start, std::size_t bytes) { ::munmap(start, bytes); }

#ifdef __APPLE__

void forbid_core_dumps() { forbid_core_files(); }

long random_some(void* to, std::size_t size) {
    const std::size_t most = std::min<std::size_t>(size, 256);  // that getentropy gives at once
    return ::getentropy(to, most) == 0 ? static_cast<long>(most) : -1;
}

void wipe(void* bytes, std::size_t size) { ::memset_s(bytes, size, 0, size); }

int flush(int descriptor) {
    // fsync leaves the bytes in the disk's own memory.
    return ::fcntl(descriptor, F_FULLFSYNC) == 0 ? 0 : ::fsync(descriptor);
}

Renamed rename_new(const char* from, const char* to) {
    if (::renamex_np(from, to, RENAME_EXCL) == 0) {
        return Renamed::done;
    }
    return errno == ENOTSUP || errno == EINVAL ? Renamed::unsupported : Renamed::failed;
}

void prefer_large_pages(void*, std::size_t) {}

std::uint64_t available_bytes() {
    vm_statistics64_data_t pages{};
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    const mach_port_t host = ::mach_host_self();
    const kern_return_t found = ::host_statistics64(
        host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count);
    ::mach_port_deallocate(::mach_task_self(), host);
    if (found != KERN_SUCCESS) {
        return unlimited;
    }
    const std::uint64_t free = std::uint64_t{pages.free_count} + pages.inactive_count;
    return free * static_cast<std::uint64_t>(::getpagesize());
}

#else

void forbid_core_dumps() {
    // The limit alone is not enough: the kernel ignores it where it hands core dumps to a program.
    forbid_core_files();
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

long random_some(void* to, std::size_t size) { return ::getrandom(to, size, 0); }

void wipe(void* bytes, std::size_t size) { ::explicit_bzero(bytes, size); }

int flush(int descriptor) { return ::fsync(descriptor); }

Renamed rename_new(const char* from, const char* to) {
    if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return Renamed::done;
    }
    return errno == EINVAL || errno == ENOSYS ? Renamed::unsupported : Renamed::failed;
}

void prefer_large_pages(void* start, std::size_t bytes) {
    ::madvise(start, bytes, MADV_HUGEPAGE);
}

namespace {

/// A fact of a file of the kernel, in bytes; without limit where it does not say.
std::uint64_t kernel_fact(const char* path, const std::string& wanted) {
    std::ifstream facts(path);
    for (std::string name, rest; facts >> name; std::getline(facts, rest)) {
        std::uint64_t kilobytes = 0;
        if (name == wanted && facts >> kilobytes) {
            return kilobytes << 10;
        }
    }
    return unlimited;
}

}  // namespace

std::uint64_t available_bytes() {
    const std::uint64_t free = kernel_fact("/proc/meminfo", "MemAvailable:");
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return free;
    }
    const std::uint64_t taken =
        std::min<std::uint64_t>(kernel_fact("/proc/self/status", "VmSize:"), limit.rlim_cur);
    return std::min<std::uint64_t>(free, limit.rlim_cur - taken);  // `ulimit -v`
}

#endif

}  // namespace atlasc::system
