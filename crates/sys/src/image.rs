//! How large images are: driver and service count their memory by the same figures.

use crate::*;

/// Bytes of one pixel; `None` for a format that OpenCL does not know.
#[must_use]
pub fn pixel_size(format: &cl_image_format) -> Option<u64> {
    let channels: u64 = match format.image_channel_order {
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH | CL_Rx => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBA | CL_sBGRA | CL_sRGBx => 4,
        _ => return None,
    };
    Some(match format.image_channel_data_type {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2 * channels,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4 * channels,
        // Packed: the whole pixel is one word, with three or four channels.
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 if channels == 3 => 2,
        CL_UNORM_INT_101010 if channels == 3 => 4,
        CL_UNORM_INT_101010_2 if channels == 4 => 4,
        _ => return None,
    })
}

/// Width, height and depth as transfers see them: array layers count along the last axis. `None` for a kind that is no
/// image.
#[must_use]
pub fn image_extent(desc: &cl_image_desc) -> Option<[usize; 3]> {
    let cl_image_desc { image_width: width, image_height: height, image_depth: depth, .. } = *desc;
    Some(match desc.image_type {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => [width, 1, 1],
        CL_MEM_OBJECT_IMAGE1D_ARRAY => [width, desc.image_array_size, 1],
        CL_MEM_OBJECT_IMAGE2D => [width, height, 1],
        CL_MEM_OBJECT_IMAGE2D_ARRAY => [width, height, desc.image_array_size],
        CL_MEM_OBJECT_IMAGE3D => [width, height, depth],
        _ => return None,
    })
}

/// Bytes of all pixels, one after the other. What a device's driver puts between rows nobody can ask for.
#[must_use]
pub fn image_size(format: &cl_image_format, desc: &cl_image_desc) -> Option<u64> {
    let extent = image_extent(desc)?;
    extent.iter().try_fold(pixel_size(format)?, |size, &side| size.checked_mul(side as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(image_channel_order: u32, image_channel_data_type: u32) -> cl_image_format {
        cl_image_format { image_channel_order, image_channel_data_type }
    }

    #[test]
    fn pixels_have_the_size_of_their_channels() {
        let size = |order, data_type| pixel_size(&format(order, data_type));
        assert_eq!(size(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(size(CL_R, CL_UNORM_INT8), Some(1));
        assert_eq!(size(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(size(CL_BGRA, CL_UNSIGNED_INT8), Some(4));
        assert_eq!(size(CL_R, CL_UNORM_SHORT_565), None);
        assert_eq!(size(0, CL_FLOAT), None);
        assert_eq!(size(CL_RGBA, 0), None);
    }

    #[test]
    fn an_image_has_the_size_of_its_pixels_whatever_its_kind() {
        let rgba = format(CL_RGBA, CL_UNORM_INT8);
        let size = |image_type| {
            let desc = cl_image_desc {
                image_type,
                image_width: 3,
                image_height: 5,
                image_depth: 7,
                image_array_size: 11,
                // Those of host memory; the device's are its own.
                image_row_pitch: 64,
                image_slice_pitch: 4096,
                ..cl_image_desc::default()
            };
            image_size(&rgba, &desc)
        };
        assert_eq!(size(CL_MEM_OBJECT_IMAGE1D), Some(12));
        assert_eq!(size(CL_MEM_OBJECT_IMAGE1D_ARRAY), Some(132));
        assert_eq!(size(CL_MEM_OBJECT_IMAGE2D), Some(60));
        assert_eq!(size(CL_MEM_OBJECT_IMAGE2D_ARRAY), Some(660));
        assert_eq!(size(CL_MEM_OBJECT_IMAGE3D), Some(420));
        assert_eq!(size(CL_MEM_OBJECT_BUFFER), None);
        let huge = cl_image_desc { image_type: CL_MEM_OBJECT_IMAGE1D, image_width: usize::MAX, ..Default::default() };
        assert_eq!(image_size(&rgba, &huge), None);
    }
}
