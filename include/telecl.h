/*
 * telecl.h: what a program may ask a telecl device beyond standard OpenCL.
 *
 * Programs need none of this: telecl's devices are ordinary OpenCL devices. A program that wants to
 * prefer near devices can ask where a device is. Include this header after CL/cl.h, look for the
 * extension, then use clGetDeviceInfo:
 *
 *     size_t size;
 *     cl_ulong round_trip = 0;
 *     clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &size);   // contains "cl_telecl_node"?
 *     clGetDeviceInfo(device, CL_DEVICE_TELECL_ROUND_TRIP_NS, sizeof round_trip, &round_trip, NULL);
 *
 * A device that is not telecl's answers CL_INVALID_VALUE, as to any query that it does not know.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TELECL_H
#define TELECL_H

#ifdef __cplusplus
extern "C" {
#endif

/* Listed in CL_DEVICE_EXTENSIONS of every telecl device, and with its version in
 * CL_DEVICE_EXTENSIONS_WITH_VERSION where the device has that query. */
#define CL_TELECL_NODE_EXTENSION_NAME "cl_telecl_node"
#define cl_telecl_node 1

/* clGetDeviceInfo */

/* char[]: the host or the socket path of the device's service, without the port, as the driver was
 * configured; ends with a zero. */
#define CL_DEVICE_TELECL_ADDRESS 0x54C0

/* cl_uint: the TCP port of the device's service; 0 if it is reached through a Unix socket. */
#define CL_DEVICE_TELECL_PORT 0x54C1

/* cl_ulong: the shortest round trip to the service, in nanoseconds, measured when the driver
 * connected. It does not change while the program runs. */
#define CL_DEVICE_TELECL_ROUND_TRIP_NS 0x54C2

/* cl_bool: CL_TRUE if the service runs on the node that the program runs on, also if one of them is
 * in a container. */
#define CL_DEVICE_TELECL_SAME_NODE 0x54C3

/* char[]: the host name of the node, as the service reports it; ends with a zero. */
#define CL_DEVICE_TELECL_NODE_NAME 0x54C4

/* char[]: the address of the node, as the service was told it (node_address), in a cluster that of the
 * Kubernetes node; empty if it was not; ends with a zero. */
#define CL_DEVICE_TELECL_NODE_ADDRESS 0x54C6

/* cl_ulong: how many bytes of the device's memory this program has now, as the service counts them:
 * buffers, images by their pixels, pipes by their packets, programs by their global variables. What
 * was released counts until the commands that use it have ended. CL_DEVICE_GLOBAL_MEM_SIZE is what
 * the program may have. Asking takes a round trip. */
#define CL_DEVICE_TELECL_MEMORY_USED 0x54C5

#ifdef __cplusplus
}
#endif

#endif /* TELECL_H */
