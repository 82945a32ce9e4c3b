// How functions that kernels call are declared.
#pragma once

#define ATLASC_DEVICE
